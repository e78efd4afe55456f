"""The checks of CUDA and its libraries."""

from __future__ import annotations

import json

import machines
import pytest
from asking import ask, payload, text

from provision.probe.output import Output

H100 = machines.hgx_h100()


def library(outputs: dict[str, Output], *rows: str) -> dict[str, Output]:
    return text(
        outputs, "libraries", outputs["libraries"].text + "".join(row.replace(" ", "\t") + "\n" for row in rows)
    )


def test_the_planned_compiler_passes_and_another_fails_with_both() -> None:
    assert ask("cuda.nvcc", H100).seen == "`nvcc` is 12.8.93"
    outcome = ask("cuda.nvcc", H100, cuda="12.4")
    assert (outcome.status, outcome.seen, outcome.expected) == ("fail", "`nvcc` is 12.8.93", "CUDA 12.4")


@pytest.mark.parametrize(("has_toolkit", "status"), [(True, "fail"), (False, "skip"), (None, "skip")])
def test_a_missing_compiler_matters_where_it_is_planned(has_toolkit: bool | None, status: str) -> None:
    assert ask("cuda.nvcc", machines.absent(H100, "nvcc"), has_toolkit=has_toolkit).status == status


def test_a_compiler_that_hangs_is_unknown() -> None:
    assert ask("cuda.nvcc", machines.fail(H100, "nvcc", status="hung")).status == "unknown"


def test_libraries_in_order_pass() -> None:
    assert ask("cuda.libs", H100).status == "pass"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so libcuda.so LD_LIBRARY_PATH"], "stub for linking"),
        (["libcudart.so.11.0 /opt/cuda-11/libcudart.so.11.0 libcudart.so.11.8.89 ldconfig"], "runtimes 11 and 12"),
        (
            [
                "libnvJitLink.so.12 /venv/nvjitlink/libnvJitLink.so.12 libnvJitLink.so.12.8.93 python",
                "libnvJitLink.so.12 /opt/cuda/libnvJitLink.so.12 libnvJitLink.so.12.0.140 LD_LIBRARY_PATH",
            ],
            "it is 12.0.140, the wheel's is 12.8.93",
        ),
    ],
    ids=["stub", "two-runtimes", "older-linker"],
)
def test_libraries_in_the_way_are_named(rows: list[str], said: str) -> None:
    outcome = ask("cuda.libs", library(H100, *rows))

    assert outcome.status == "fail"
    assert said in outcome.seen
    assert outcome.subjects


def test_unreadable_libraries_are_unknown() -> None:
    assert ask("cuda.libs", machines.absent(H100, "libraries")).status == "unknown"


COMPAT = "libcuda.so.1 /usr/local/cuda/compat/libcuda.so.1 libcuda.so.{} LD_LIBRARY_PATH"


def test_newer_compatibility_libraries_on_a_data_center_gpu_pass() -> None:
    assert ask("cuda.compat", library(H100, COMPAT.format("590.48.01"))).status == "pass"
    assert ask("cuda.compat", H100).seen == "no program gets them"


def test_older_compatibility_libraries_fail_with_both_versions() -> None:
    outcome = ask("cuda.compat", library(H100, COMPAT.format("550.54.15")))

    assert outcome.seen == "/usr/local/cuda/compat/libcuda.so.1 is 550.54.15, older than the driver 580.105.08"


def test_compatibility_libraries_on_geforce_fail() -> None:
    machine = machines.workstation_rtx4090()
    loaded = ask("cuda.compat", library(machine, COMPAT.format("590.48.01")), machine="workstation_rtx4090")
    installed = text(machine, "packages", machine["packages"].text + "cuda-compat-12-8\t570.1-1\tamd64\tinstalled\n")

    assert "RTX 4090, which it does not support" in loaded.seen
    assert ask("cuda.compat", installed, machine="workstation_rtx4090").subjects == ("cuda-compat-12-8",)


@pytest.mark.parametrize(
    ("check", "field", "planned", "other", "label"),
    [("cuda.cudnn", "cudnn", "9.10.2.21", "8.9.2.26", "cuDNN"), ("cuda.nccl", "nccl", "2.27.3", "2.19.3", "NCCL")],
    ids=["cudnn", "nccl"],
)
class TestPlannedLibrary:
    def test_passes_in_the_planned_version(self, check: str, field: str, planned: str, other: str, label: str) -> None:
        del other
        assert ask(check, H100, **{field: planned}).seen.startswith(f"{label} is {planned[:4]}")

    def test_fails_in_another(self, check: str, field: str, planned: str, other: str, label: str) -> None:
        outcome = ask(check, H100, **{field: other})

        assert (outcome.status, outcome.expected) == ("fail", f"{label} {other}")
        assert planned[:4] in outcome.seen

    def test_is_not_asked_without_a_plan(self, check: str, field: str, planned: str, other: str, label: str) -> None:
        del planned, other
        assert ask(check, H100, **{field: None}).seen == f"no {label} is planned"

    def test_fails_where_there_is_none(self, check: str, field: str, planned: str, other: str, label: str) -> None:
        del field, planned, other
        none = payload(payload(text(H100, "libraries", ""), "python", packages={}), "torch", cudnn=None, nccl=None)
        assert ask(check, none).seen == f"there is no {label}"

    def test_is_unknown_where_nothing_answers(
        self, check: str, field: str, planned: str, other: str, label: str
    ) -> None:
        del field, planned, other, label
        assert ask(check, machines.absent(H100, "libraries", "python", "torch")).status == "unknown"


def test_a_copy_on_the_library_path_comes_before_the_wheel() -> None:
    outcome = ask("cuda.cudnn", library(H100, "libcudnn.so.9 /opt/old/libcudnn.so.9 libcudnn.so.9.1.0 LD_LIBRARY_PATH"))

    assert outcome.seen == "/opt/old/libcudnn.so.9 is 9.1.0"
    assert outcome.subjects == ("/opt/old/libcudnn.so.9",)


def test_two_majors_on_the_loaders_path_fail() -> None:
    rows = [f"libcudnn.so.{major} /usr/lib/libcudnn.so.{major} libcudnn.so.{major} ldconfig" for major in ("8", "9")]

    assert "two majors of cuDNN" in ask("cuda.cudnn", library(H100, *rows)).seen


def smoke(**tests: str) -> dict[str, Output]:
    document = json.loads(H100["cuda-work"].text.partition(" ")[2])
    document["gpus"][3]["tests"] = {"alloc": "ok", "vector-add": "ok"} | {
        name.replace("_", "-"): said for name, said in tests.items()
    }
    return payload(H100, "cuda-work", gpus=document["gpus"])


def test_a_kernel_on_every_gpu_passes() -> None:
    assert ask("cuda.smoke", H100).seen == "8 of 8 GPUs computed correctly"


def test_a_wrong_sum_names_the_gpu() -> None:
    outcome = ask("cuda.smoke", smoke(vector_add="failed: 3 wrong sums"))

    assert (outcome.status, outcome.subjects) == ("fail", ("GPU 3 (0000:5d:00.0)",))
    assert outcome.seen == "GPU 3 (0000:5d:00.0): vector-add: 3 wrong sums"


def test_a_payload_that_cannot_begin_says_why() -> None:
    outcome = ask("cuda.smoke", payload(H100, "cuda-work", error="cuInit returned 802", gpus=[]))

    assert (outcome.status, outcome.seen) == ("fail", "cuda-work could not begin: cuInit returned 802")


def test_a_missing_gpu_is_named() -> None:
    document = json.loads(H100["cuda-work"].text.partition(" ")[2])
    outcome = ask("cuda.smoke", payload(H100, "cuda-work", gpus=document["gpus"][:7]))

    assert (outcome.status, outcome.seen) == ("fail", "7 of 8 GPUs worked")
    assert outcome.subjects == ("GPU 7 (0000:db:00.0)",)


def test_a_test_that_was_not_tried_is_unknown() -> None:
    outcome = ask("cuda.smoke", smoke(vector_add="skipped: no memory left"))

    assert (outcome.status, outcome.seen) == ("unknown", "GPU 3 (0000:5d:00.0): skipped: no memory left")


def test_torch_stands_in_and_a_hung_probe_is_unknown() -> None:
    hung = machines.fail(H100, "cuda-work", status="hung")

    assert ask("cuda.smoke", hung).status == "pass"
    assert ask("cuda.smoke", machines.absent(hung, "torch-work")).status == "unknown"


def test_no_compiler_is_asked_where_no_cuda_is_planned() -> None:
    assert ask("cuda.nvcc", H100, cuda=None).seen == "no CUDA is planned"


@pytest.mark.parametrize("check", ["cuda.libs", "cuda.compat"])
def test_no_library_at_all_is_no_order_where_the_machine_has_a_driver(check: str) -> None:
    assert ask(check, text(H100, "libraries", "")).status == "unknown"
    assert ask(check, text(H100, "libraries", ""), gpus=None).status == "unknown"


def test_no_library_is_no_fault_where_there_is_no_driver() -> None:
    assert ask("cuda.libs", machines.cpu_only(), machine="cpu_only").status == "skip"
