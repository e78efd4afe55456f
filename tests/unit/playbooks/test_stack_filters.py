"""What the roles for CUDA, NCCL, DCGM and the fabric refuse, keep and plan."""

from __future__ import annotations

from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")


stack = playbook_files.load_filters("gpu_stack")

PACKAGES = {"11.8": [{"name": "cuda-toolkit-11-8", "version": "11.8.0-1"}], "12.1": [{"name": "x", "version": "1"}]}
HOMES = {"11.8": "/usr/local/cuda-11.8", "12.1": "/usr/local/cuda-12.1"}


def cuda(versions: list[Any], default: Any = "", compat: tuple[Any, ...] = ()) -> list[str]:
    problems: list[str] = stack.find_cuda_problems(
        versions, PACKAGES, HOMES, default, compat, {"12.1": PACKAGES["12.1"]}
    )
    return problems


def test_cuda_side_by_side_is_fine() -> None:
    assert cuda(["11.8", "12.1"], "11.8", ("12.1",)) == []


@pytest.mark.parametrize(
    ("versions", "default", "compat", "words"),
    [
        ([12.1], "", (), 'in quotes, "12.1"'),
        (["12.1"], 12.1, (), 'in quotes, "12.1"'),
        (["12.4"], "", (), "it has: 11.8, 12.1"),
        (["12.1"], "11.8", (), "none of gpu_cuda_versions"),
        (["12.1"], "", ("11.8",), "gpu_cuda_compat names 11.8"),
        (["11.8"], "", ("11.8",), "no forward compatibility packages"),
    ],
)
def test_cuda_that_cannot_be_had_is_named(
    versions: list[Any], default: Any, compat: tuple[Any, ...], words: str
) -> None:
    [problem] = cuda(versions, default, compat)
    assert words in problem


KEYS = ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME"]


def test_nccl_setting_that_exists_passes() -> None:
    assert stack.find_nccl_problems({"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "=eth0"}, KEYS) == []
    assert stack.find_nccl_problems({"NCCL_ANYTHING": 1}, []) == []


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"NCCL_SOCKET_IFNMAE": "eth0"}, "did you mean NCCL_SOCKET_IFNAME?"),
        ({"nccl_debug": "INFO"}, "did you mean NCCL_DEBUG?"),
        ({"NCCL_DEBUG": "INFO\nNCCL_X=1"}, "one line"),
        ({"NCCL_DEBUG": " INFO"}, "one line"),
        ({"NCCL_DEBUG": ""}, "one line"),
        ({"NCCL_DEBUG": True}, "whole numbers"),
        ({"NCCL_DEBUG": 1.5}, "whole numbers"),
        ("NCCL_DEBUG=INFO", "is a mapping"),
    ],
)
def test_nccl_setting_that_would_do_nothing_is_refused(conf: Any, words: str) -> None:
    [problem] = stack.find_nccl_problems(conf, KEYS)
    assert words in problem


def test_nccl_key_of_another_form_is_refused_without_a_list() -> None:
    assert len(stack.find_nccl_problems({"LD_PRELOAD": "x"}, [])) == 1


def test_nccl_topology_and_its_key_are_one_too_many() -> None:
    [problem] = stack.find_nccl_problems({"NCCL_TOPO_FILE": "/x"}, [], None, '<system version="1"/>')
    assert "keep one" in problem
    [problem] = stack.find_nccl_problems({}, [], None, "<xml/>")
    assert "not a topology" in problem


USERS = "# site\nNCCL_IB_HCA=mlx5\nNCCL_DEBUG=INFO\n"


def test_nccl_block_stands_first_and_the_users_lines_stay() -> None:
    text = stack.merge_nccl_conf(USERS, {"NCCL_DEBUG": "WARN"})
    assert text.endswith(USERS)
    assert text.splitlines()[1] == "NCCL_DEBUG=WARN"
    assert stack.find_nccl_overridden(text, {"NCCL_DEBUG": "WARN"}) == ["NCCL_DEBUG"]


def test_nccl_block_is_replaced_not_repeated() -> None:
    once = stack.merge_nccl_conf(USERS, {"NCCL_DEBUG": "WARN"})
    assert stack.merge_nccl_conf(once, {"NCCL_DEBUG": "WARN"}) == once
    assert stack.merge_nccl_conf(once, {"NCCL_DEBUG": "TRACE"}).count("BEGIN provision") == 1


def test_nccl_block_is_taken_out_without_a_trace() -> None:
    assert stack.merge_nccl_conf(stack.merge_nccl_conf(USERS, {"NCCL_DEBUG": "WARN"}), {}) == USERS
    assert stack.merge_nccl_conf(stack.merge_nccl_conf(None, {"NCCL_DEBUG": "WARN"}), {}) == ""


DIGEST = "0123456789abcdef" * 4


def test_nccl_tests_that_nobody_asked_for_have_no_problems() -> None:
    assert stack.find_nccl_tests_problems("", "", None, None) == []


def test_nccl_tests_with_their_digest_and_variables_pass() -> None:
    make = {"MPI": 1, "MPI_HOME": "/usr/lib/x86_64-linux-gnu/openmpi", "CXX": "g++-11"}
    assert stack.find_nccl_tests_problems("/srv/nccl-tests.tar.gz", DIGEST, make, ["sm_80", "sm_90a", "sm_120"]) == []


@pytest.mark.parametrize(
    ("sha256", "make", "sm", "words"),
    [
        ("", {}, [], "gpu_nccl_tests_sha256, the 64"),
        (DIGEST.upper(), {}, [], "gpu_nccl_tests_sha256, the 64"),
        (DIGEST + "\n", {}, [], "gpu_nccl_tests_sha256, the 64"),
        (DIGEST, ["MPI=1"], [], "is a mapping"),
        (DIGEST, {"-f": "x"}, [], "`-f` is not a variable"),
        (DIGEST, {"SHELL=x;y": "x"}, [], "not a variable of a Makefile"),
        (DIGEST, {"CUDA_HOME": "/x"}, [], "gpu_nccl_tests_cuda_home"),
        (DIGEST, {"MPI": True}, [], "a number (1 for yes)"),
        (DIGEST, {"CXX": "g++\nall:"}, [], "a line of text"),
        (DIGEST, {}, "sm_90", "is a list"),
        (DIGEST, {}, 90, "is a list"),
        (DIGEST, {}, ["9.0"], "words such as `sm_90`"),
        (DIGEST, {}, [90], "words such as `sm_90`"),
    ],
)
def test_nccl_tests_that_cannot_be_built_are_refused(sha256: Any, make: Any, sm: Any, words: str) -> None:
    [problem] = stack.find_nccl_tests_problems("https://mirror.example/x.tar.gz", sha256, make, sm)
    assert words in problem


def test_nccl_tests_are_compiled_for_the_gpus_alone() -> None:
    assert stack.make_nccl_tests_words("/usr/local/cuda", {"MPI": 1}, ["sm_80", "sm_90"]) == [
        "CUDA_HOME=/usr/local/cuda",
        "MPI=1",
        "NVCC_GENCODE=-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90",
    ]


def test_nccl_tests_are_compiled_as_their_makefile_says_where_no_gpu_is_known() -> None:
    assert stack.make_nccl_tests_words("/usr", {}, []) == ["CUDA_HOME=/usr"]


def test_a_users_own_gpus_for_nccl_tests_win() -> None:
    words = stack.make_nccl_tests_words("/usr", {"NVCC_GENCODE": "-arch=native"}, ["sm_80"])
    assert words == ["CUDA_HOME=/usr", "NVCC_GENCODE=-arch=native"]


def test_damaged_nccl_block_is_named() -> None:
    [problem] = stack.find_nccl_problems({}, [], stack.NCCL_BEGIN + "\nNCCL_DEBUG=WARN\n")
    assert "damaged" in problem


DCGM = [
    {"name": "datacenter-gpu-manager-4-core", "version": "1:4.5.2-1"},
    {"name": "datacenter-gpu-manager-4-cuda12", "version": "1:4.5.2-1"},
]


def installed(**versions: str) -> dict[str, Any]:
    return {"packages": {name.replace("_", "-"): {"version": version} for name, version in versions.items()}}


@pytest.mark.parametrize(
    ("packages", "kept"),
    [
        ({}, []),
        ({"datacenter_gpu_manager_4_core": "1:4.4.1-1"}, []),
        ({"datacenter_gpu_manager_4_core": "1:4.5.2-1"}, []),
        ({"datacenter_gpu_manager": "1:3.3.9"}, []),
        ({"datacenter_gpu_manager_4_core": "1:4.10.0-1"}, ["datacenter-gpu-manager-4-core 1:4.10.0-1"]),
        ({"datacenter_gpu_manager_5_core": "1:5.0.0-1"}, ["datacenter-gpu-manager-5-core 1:5.0.0-1"]),
    ],
)
def test_newer_dcgm_of_a_vendor_is_kept(packages: dict[str, str], kept: list[str]) -> None:
    assert stack.find_dcgm_kept(DCGM, installed(**packages)) == kept


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (None, ["datacenter-gpu-manager-4-core 1:4.10.0-1"]),
        (["datacenter-gpu-manager-4-core"], ["datacenter-gpu-manager-4-core 1:4.10.0-1"]),
        ([], []),
    ],
)
def test_newer_dcgm_that_a_lock_brought_goes_back(before: list[str] | None, kept: list[str]) -> None:
    host = {**installed(datacenter_gpu_manager_4_core="1:4.10.0-1"), "dcgm_before": before}
    assert stack.find_dcgm_kept(DCGM, host) == kept


FABRIC = {
    "packages": [
        {"name": "nvidia-fabricmanager", "version": "580.159.03-1"},
        {"name": "libnvidia-nscq", "version": "580.159.03-1"},
        {"name": "nvlsm", "version": "2025.10.11-1"},
    ],
    "services": ["nvidia-fabricmanager"],
}
IMEX = {
    "packages": [{"name": "nvidia-imex", "version": "580.159.03-1"}],
    "services": ["nvidia-imex"],
    "devices": ["2941"],
}


def fabric(
    switches: tuple[str, ...] = (), gpus: tuple[str, ...] = (), nics: Any = (), **options: Any
) -> dict[str, Any]:
    node = {
        "nvswitches": [{"device": device} for device in switches],
        "gpus": [{"device": device} for device in gpus],
        "nics": list(nics),
    }
    plan: dict[str, Any] = stack.plan_fabric(
        node,
        {
            "fabric": FABRIC,
            "imex_section": IMEX,
            "nvswitch_devices": ["22A3"],
            "driver_version": "580.159.03",
            **options,
        },
    )
    return plan


def test_fabric_manager_comes_with_an_nvswitch_and_not_without() -> None:
    assert fabric()["packages"] == []
    plan = fabric(("22a3",))
    assert plan["packages"] == FABRIC["packages"]
    assert plan["services"] == [{"name": "nvidia-fabricmanager.service", "is_wanted": True}]
    assert plan["problems"] == []


def test_other_bridges_are_no_nvswitch() -> None:
    assert fabric(("1234",))["packages"] == []
    assert fabric(("1234",), nvswitch_devices=[])["packages"] == FABRIC["packages"]


def test_switch_manager_behind_a_network_card_counts() -> None:
    assert fabric(nics=[{"device": "1021", "is_switch_manager": True}])["packages"] == FABRIC["packages"]


def test_fabric_forced_without_hardware_is_installed_and_never_started() -> None:
    plan = fabric(enabled=True)
    assert plan["packages"] == FABRIC["packages"]
    assert [service["is_wanted"] for service in plan["services"]] == [False]


def test_fabric_switched_off_is_off() -> None:
    assert fabric(("22a3",), enabled=False) == {**fabric(("22a3",), enabled=False), "packages": [], "services": []}


def test_imex_comes_with_its_gpus() -> None:
    plan = fabric(gpus=("2941",))
    assert [item["name"] for item in plan["packages"]] == ["nvidia-imex"]
    assert plan["services"] == [{"name": "nvidia-imex.service", "is_wanted": True}]


@pytest.mark.parametrize("driver", ["580.159.04", "580.159.0", "580.159"])
def test_fabric_of_another_driver_is_refused(driver: str) -> None:
    problems = fabric(("22a3",), driver_version=driver)["problems"]
    assert [problem.split()[0] for problem in problems] == ["nvidia-fabricmanager", "libnvidia-nscq"]


def test_nvswitch_without_a_fabric_manager_in_the_lock_is_refused() -> None:
    assert "no fabric manager" in fabric(("22a3",), fabric=None)["problems"][0]
    assert fabric(fabric=None)["problems"] == []


def test_a_word_that_is_no_choice_is_named() -> None:
    assert "`maybe`" in fabric(enabled="maybe")["problems"][0]
