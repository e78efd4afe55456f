"""Preflight: every problem of a node is found, all in one go, each with a way out."""

from __future__ import annotations

from typing import Any

import playbook_files
import preflight_documents
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

gpu_host = playbook_files.load_filters("gpu_host")
gpu_options = playbook_files.load_filters("gpu_options")

Document = preflight_documents.Document
make_host, make_lock, signed = preflight_documents.make_host, preflight_documents.make_lock, preflight_documents.signed


def judge(host: Document, lock: Document | None = None, **wanted: Any) -> Document:
    settings = {"architectures": ["Ampere"], **wanted}
    return gpu_host.list_host_problems(host, lock or make_lock(), settings)


# The flavour of the kernel modules


@pytest.mark.parametrize(
    ("requested", "found", "flavour", "problems"),
    [
        ("auto", ["Volta"], "proprietary", 0),
        ("auto", ["Ampere"], "open", 0),
        ("auto", [], "open", 0),
        ("auto", ["Volta", "Ampere"], "open", 1),
        ("open", ["Volta"], "open", 1),
        ("proprietary", ["Blackwell"], "proprietary", 1),
        ("proprietary", ["Ampere"], "proprietary", 0),
        ("auto", ["unknown"], "open", 1),
    ],
)
def test_flavour_follows_the_gpus(requested: str, found: list[str], flavour: str, problems: int) -> None:
    lock = make_lock()
    decided = gpu_host.decide_flavour(requested, found, lock, lock["profiles"]["debian12"])
    assert decided["flavour"] == flavour
    assert len(decided["problems"]) == problems


def test_flavour_does_not_hang_on_the_order_of_keys() -> None:
    """The lock of a generation comes back with its keys sorted: open would stand first for every driver."""
    lock = make_lock()
    lock["modules"] = dict.fromkeys(("Hopper", "Ampere", "Volta"), "proprietary")
    profile = lock["profiles"]["debian12"]
    decided = []
    for names in (["open", "proprietary"], ["proprietary", "open"]):
        profile["driver"]["flavours"] = {name: profile["driver"]["flavours"][name] for name in names}
        decided.append(gpu_host.decide_flavour("auto", [], lock, profile)["flavour"])
    assert decided == ["proprietary", "proprietary"]


def test_flavour_that_the_lock_has_not_is_refused() -> None:
    lock = make_lock()
    del lock["profiles"]["debian12"]["driver"]["flavours"]["open"]
    decided = gpu_host.decide_flavour("auto", ["Blackwell"], lock, lock["profiles"]["debian12"])
    assert decided["flavour"] is None
    assert "offers proprietary alone" in decided["problems"][0]


# The node


def test_fit_node_has_no_problem() -> None:
    result = judge(make_host())
    assert result["problems"] == []
    assert result["flavour"] == "open"
    assert result["is_disruptive"]


def test_node_that_has_everything_is_not_disturbed() -> None:
    host = make_host()
    for name, version in (("nvidia-open-kernel-dkms", "535.261.03-1"), ("nvidia-smi", "535.261.03-1")):
        host["packages"][name] = {"version": version, "status": "ii"}
    host["packages"]["cuda-toolkit-12-1"] = {"version": "12.1.1-1", "status": "ii"}
    host.update(busy=[{"pid": 1, "command": "python"}], disk={"/usr": 1}, secure_boot=True)
    host["module"] = {"version": "535.261.03", "is_open": True}
    result = judge(host, disk_mib={"driver": {"/usr": 100}})
    assert result["problems"] == []
    assert not result["is_disruptive"]
    assert result["missing"] == []


def with_host(**changes: Any) -> Document:
    host = make_host()
    for path, value in changes.items():
        *folders, name = path.split("__")
        place = host
        for folder in folders:
            place = place[folder]
        place[name] = value
    return host


@pytest.mark.parametrize(
    ("changes", "wanted", "words"),
    [
        ({"os__is_root": False}, {}, "not root"),
        ({"os__id": "debian11"}, {}, "no profile for this node's system debian11"),
        ({"os__id": "debian13"}, {}, "its compiler is too new"),
        ({"os__arch": "arm64"}, {}, "This node is arm64"),
        ({"gpus": []}, {"is_no_gpu_allowed": False}, "no NVIDIA GPU"),
        ({"kernel__target": "6.12.107+deb13-amd64"}, {}, "does not compile"),
        ({"dpkg__half": ["postfix"]}, {}, "unfinished business: postfix"),
        ({"dpkg__audit": "The following packages are odd"}, {}, "unfinished business"),
        ({"busy": [{"pid": 7, "command": "train"}]}, {}, "in use by train (7)"),
        ({"secure_boot": True}, {}, "Secure Boot"),
        ({"foreign__runfile": "/usr/bin/nvidia-uninstall"}, {}, "runfile"),
        ({"foreign__repos": [{"file": "/a.list", "uri": "https://b"}]}, {}, "/a.list brings packages from https://b"),
        ({"disk": {"/usr": 10}}, {"disk_mib": {"driver": {"/usr": 100}}}, "10 MiB free, and about 100 MiB"),
        ({}, {"connection": "local", "reboot": "always"}, "would reboot itself"),
    ],
)
def test_unfit_node_is_refused(changes: Document, wanted: Document, words: str) -> None:
    problems = judge(with_host(**changes), **wanted)["problems"]
    assert len(problems) == 1, problems
    assert words in problems[0]
    assert problems[0].endswith(".")


def test_all_problems_are_told_at_once() -> None:
    host = with_host(os__is_root=False, busy=[{"pid": 7, "command": "x"}], secure_boot=True, dpkg__half=["postfix"])
    assert len(judge(host)["problems"]) == 4


def test_run_that_died_half_way_may_go_on() -> None:
    result = judge(with_host(dpkg__half=["nvidia-kernel-dkms", "gcc"], dpkg__audit="half"))
    assert result["problems"] == []
    assert any("finished first" in note for note in result["notes"])


@pytest.mark.parametrize(
    ("broken_off", "is_ours"),
    [
        (["gcc-12", "cpp-12", "nvidia-kernel-dkms"], True),
        (["gcc-12", "cpp-12", "postfix"], False),
        (["cpp-12", "nvidia-kernel-dkms"], False),
        ([], False),
    ],
)
def test_what_our_own_transaction_brought_along_is_ours(broken_off: list[str], is_ours: bool) -> None:
    host = with_host(dpkg__half=["gcc-12", "cpp-12", "libc-bin"], dpkg__broken_off=broken_off)
    host["packages"].update({"gcc-12": {"version": "12", "status": "iHR"}, "cpp-12": {"version": "12", "status": "iU"}})
    host["packages"]["libc-bin"] = {"version": "2", "status": "it"}
    assert (judge(host)["problems"] == []) is is_ours


def test_known_bad_kernel_passes_where_the_module_was_built() -> None:
    host = with_host(kernel__target="6.12.107+deb13-amd64")
    host["dkms"] = [
        {
            "module": "nvidia-current-open",
            "version": "535.261.03",
            "kernel": "6.12.107+deb13-amd64",
            "status": "installed",
        }
    ]
    assert judge(host)["problems"] == []
    host["dkms"][0]["module"] = "nvidia-current"
    assert "does not compile" in judge(host)["problems"][0], "the other flavour's module proves nothing"


@pytest.mark.parametrize(
    ("release", "is_bad"), [("6.12.94", False), ("6.12.97", True), ("6.13.0", True), ("7.1.2", True)]
)
def test_kernel_ranges_are_ordered_by_number(release: str, is_bad: bool) -> None:
    assert bool(judge(with_host(kernel__target=f"{release}-amd64"))["problems"]) is is_bad


@pytest.mark.parametrize(("last", "is_bad"), [("6.12.106", False), ("6.12.107", True), ("6.12", True), ("6.11", False)])
def test_last_kernel_of_a_range_counts_with_all_its_patches(last: str, is_bad: bool) -> None:
    lock = make_lock()
    lock["known_bad"][0]["kernel_last"] = last
    host = with_host(kernel__target="6.12.107-amd64")
    assert bool(judge(host, signed(lock))["problems"]) is is_bad


def test_kernel_is_judged_by_its_packages_version() -> None:
    host = with_host(kernel__target="6.12-cloud-amd64")
    host["packages"]["linux-image-6.12-cloud-amd64"] = {"version": "6.12.107-1", "status": "ii"}
    assert "does not compile" in judge(host)["problems"][0]


@pytest.mark.parametrize("allowed", [{"is_busy_allowed": True}, {"has_drain": True}])
def test_busy_gpus_are_a_note_where_somebody_sees_to_it(allowed: Document) -> None:
    result = judge(with_host(busy=[{"pid": 7, "command": "x"}]), **allowed)
    assert result["problems"] == []
    assert any("in use" in note for note in result["notes"])


def make_converged() -> Document:
    """What :func:`make_lock` plans, with somebody at work on it."""
    host = make_host()
    for name in ("nvidia-open-kernel-dkms", "nvidia-smi"):
        host["packages"][name] = {"version": "535.261.03-1", "status": "ii"}
    host["packages"]["cuda-toolkit-12-1"] = {"version": "12.1.1-1", "status": "ii"}
    host["kernel"]["running"] = host["kernel"]["target"]
    host["module"] = {"version": "535.261.03", "is_open": True}
    host["busy"] = [{"pid": 7, "command": "train"}]
    return host


DISTURBED: list[tuple[Document, Document, str]] = [
    ({}, {"reboot": "always"}, "`gpu_reboot_policy` is always"),
    ({}, {"requests": ["a new BIOS"]}, "a new BIOS"),
    ({}, {"kernel_policy": "pin", "kernel_version": "6.1.0-51-amd64"}, "6.1.0-51-amd64 is the one to run"),
    ({"kernel": {"target": "6.1.0-51-amd64", "running": "6.1.0-50-amd64"}}, {}, "kernel 6.1.0-50-amd64 runs"),
    ({"gpus": [{"device": "20b0", "address": "0000:01:00.0", "driver": "nouveau"}]}, {}, "nouveau has 0000:01:00.0"),
    ({"module": {"version": "535.261.03", "is_open": False}}, {}, "not the open ones"),
    ({"module": {"version": "535.1", "is_open": True}}, {}, "driver 535.1 is loaded"),
    ({"module": {"version": None, "is_open": None}}, {}, "no module is loaded"),
    ({}, {"module_options": {"NVreg_UsePageAttributeTable": 1}}, "options of the driver's modules"),
    ({"files": {"/etc/modprobe.d/zz-provision-gpu.conf": {"sha256": "0"}}}, {}, "options of the driver's modules"),
    ({}, {"is_mig_due": True}, "partitions"),
    ({}, {"is_driver_absent": True, "is_driver_removed": True}, "is removed"),
]


@pytest.mark.parametrize(("changes", "wanted", "words"), DISTURBED)
def test_whatever_would_disturb_jobs_needs_a_drain(changes: Document, wanted: Document, words: str) -> None:
    host = {**make_converged(), **changes}
    result = judge(host, **wanted)
    assert result["is_disruptive"]
    (problem,) = result["problems"]
    assert words in problem
    assert "in use by train (7)" in problem
    assert judge(host, **wanted, has_drain=True)["problems"] == []
    inside = {**host, "os": {**host["os"], "is_container": True}}
    assert not judge(inside, **wanted)["is_disruptive"]


def test_converged_node_is_left_to_its_jobs() -> None:
    options = {"NVreg_UsePageAttributeTable": 1}
    text = gpu_options.render_options(options, "nvidia-current-open")
    import hashlib

    host = make_converged()
    host["files"]["/etc/modprobe.d/zz-provision-gpu.conf"] = {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    result = judge(host, module_options=options, kernel_policy="pin", kernel_version="6.1.0-50-amd64")
    assert (result["problems"], result["is_disruptive"], result["disruptions"]) == ([], False, [])
    assert not judge(make_converged(), is_driver_absent=True)["is_disruptive"]


def test_services_on_a_gpu_are_nobodys_work() -> None:
    host = make_converged()
    host["busy"] = [
        {"pid": 1, "command": "nvidia-persiste"},
        {"pid": 2, "command": "nv-hostengine"},
        {"pid": 3, "command": "train"},
    ]
    services = ["nvidia-persistenced", "nvidia-dcgm.service"]
    assert gpu_host.find_users(host, services) == ["train (3)"]
    host["busy"].pop()
    assert judge(host, reboot="always", services=services)["problems"] == []


def test_options_that_are_none_are_a_problem_of_the_list() -> None:
    host = make_converged()
    host["busy"] = []
    (problem,) = judge(host, module_options={"rm": "-rf"})["problems"]
    assert "gpu_driver_module_options" in problem


def test_driver_of_an_operator_is_not_judged() -> None:
    host = with_host(kernel__target="6.12.107+deb13-amd64")
    assert judge(host, is_driver_absent=True)["problems"] == []


def test_driver_version_that_is_none_is_refused_before_anything_reads_it() -> None:
    (problem,) = judge(make_host(), driver_version="535; reboot")["problems"]
    assert "`gpu_driver_version` is '535; reboot'" in problem


@pytest.mark.parametrize(("method", "words"), [("cuda_repo", "--method cuda_repo"), ("runfile", "never installed")])
def test_another_method_than_the_locks_is_refused(method: str, words: str) -> None:
    (problem,) = judge(make_host(), driver_method=method)["problems"]
    assert f"`gpu_driver_method` is {method}, and the lock was made for distro" in problem
    assert words in problem
    assert judge(make_host(), driver_method="distro")["problems"] == []
    assert judge(make_host(), driver_method=method, is_driver_absent=True)["problems"] == []


def test_pinning_no_kernel_is_refused() -> None:
    (problem,) = judge(make_host(), kernel_policy="pin", kernel_version="")["problems"]
    assert "`gpu_kernel_version` ''" in problem
    assert judge(make_host(), kernel_policy="pin", kernel_version="6.1.0-50-amd64")["problems"] == []


def test_what_others_refuse_is_in_the_list() -> None:
    assert "no such network" in judge(make_host(), refusals=["no such network"])["problems"]


def test_folders_of_one_file_system_share_its_space() -> None:
    sizes = {"driver": {"/usr": 60, "/var": 60}}
    assert judge(with_host(disk={"/usr": 100, "/var": 100}), disk_mib=sizes)["problems"]
    assert not judge(with_host(disk={"/usr": 100, "/var": 101}), disk_mib=sizes)["problems"]
