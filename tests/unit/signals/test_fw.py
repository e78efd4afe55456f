"""The checks of the frameworks."""

from __future__ import annotations

import json

import machines
import pytest
from asking import MATRIX, ask, of_gpu, payload, text

from provision.probe.output import Output

H100 = machines.hgx_h100()
GPU3 = "GPU 3 (0000:5d:00.0)"


def framework(outputs: dict[str, Output], name: str, **fields: object) -> dict[str, Output]:
    document = {"name": name, "version": "2.20.0", "error": None, "is_available": True, "device_count": 8} | fields
    return text(outputs, name, f"@provision-payload {json.dumps(document)}\n")


def test_the_planned_torch_passes() -> None:
    assert ask("fw.torch.import", H100).seen == "torch 2.8.0+cu128 imports"


def test_an_import_that_fails_says_why() -> None:
    why = "ImportError: libcudnn.so.9: cannot open"
    outcome = ask("fw.torch.import", payload(H100, "torch", error=why, version=None))

    assert (outcome.status, outcome.expected) == ("fail", "torch 2.8.0")
    assert outcome.seen == f"importing torch fails: {why}"


@pytest.mark.parametrize("version", ["2.7.1+cu128", "2.8.0+cu126"], ids=["other-version", "other-build"])
def test_another_torch_than_planned_fails(version: str) -> None:
    outcome = ask("fw.torch.import", payload(H100, "torch", version=version), packages={"torch": "2.8.0+cu128"})

    assert (outcome.status, outcome.seen) == ("fail", f"torch is {version}")


def test_a_build_for_another_cuda_fails_where_the_lock_names_no_build() -> None:
    outcome = ask("fw.torch.import", payload(H100, "torch", version="2.8.0+cu126", cuda="12.6"))

    assert outcome.seen == "torch 2.8.0+cu126 is built for CUDA 12.6"
    assert outcome.expected == "torch 2.8.0 for CUDA 12.8"


def test_torch_is_not_asked_without_a_plan_and_unknown_without_an_answer() -> None:
    assert ask("fw.torch.import", H100, frameworks={}).status == "skip"
    assert ask("fw.torch.import", machines.fail(H100, "torch", status="hung")).status == "unknown"
    assert ask("fw.torch.import", payload(H100, "torch", version=None)).status == "unknown"


def test_torch_that_sees_all_gpus_passes() -> None:
    assert ask("fw.torch.cuda", H100).seen == "torch sees 8 GPUs"


def blind(outputs: dict[str, Output], **fields: object) -> dict[str, Output]:
    return payload(outputs, "torch", **({"is_available": False, "device_count": 0} | fields))


def test_a_build_for_processors_is_named_before_all_else() -> None:
    hidden = machines.change(H100, "environment", "PATH=", "CUDA_VISIBLE_DEVICES=-1\nPATH=")
    outputs = blind(hidden, is_cuda_build=False, version="2.8.0+cpu", cuda=None)
    outcome = ask("fw.torch.cuda", outputs, packages={"torch": "2.8.0+cu128"})

    assert outcome.seen == "torch 2.8.0+cpu is a build for processors only"
    assert "`torch==2.8.0+cu128`" in outcome.remedy


def test_a_variable_that_hides_every_gpu_is_named() -> None:
    outputs = machines.change(blind(H100), "environment", "PATH=", "CUDA_VISIBLE_DEVICES=-1\nPATH=")

    assert ask("fw.torch.cuda", outputs).seen == "`CUDA_VISIBLE_DEVICES=-1` hides every GPU from torch"


def test_a_driver_too_old_is_named_with_numbers_from_the_facts() -> None:
    outputs = machines.change(blind(H100), "driver-version", "580.105.08", "470.256.02")
    outcome = ask("fw.torch.cuda", outputs)
    floor = MATRIX.cuda_below("12.8")[-1].minimum_driver

    assert (
        outcome.seen
        == f"torch 2.8.0+cu128 is built for CUDA 12.8, which takes driver {floor} or newer; 470.256.02 is loaded"
    )


def test_the_frameworks_own_reason_comes_last() -> None:
    outcome = ask("fw.torch.cuda", blind(H100, reason="CUDA unknown error 999"))

    assert outcome.seen == "torch says: CUDA unknown error 999"


def test_fewer_gpus_than_planned_fail_with_what_limits_them() -> None:
    outputs = machines.change(H100, "environment", "PATH=", "CUDA_VISIBLE_DEVICES=0,1\nPATH=")
    outcome = ask("fw.torch.cuda", payload(outputs, "torch", device_count=2))

    assert outcome.seen == "torch sees 2 of 8 GPUs, with `CUDA_VISIBLE_DEVICES=0,1`"


def test_torch_that_says_nothing_is_unknown() -> None:
    assert ask("fw.torch.cuda", payload(H100, "torch", is_available=None, device_count=None)).status == "unknown"


@pytest.mark.parametrize(("check", "name"), [("fw.tf.devices", "tensorflow"), ("fw.jax.devices", "jax")])
class TestOtherFramework:
    def test_passes_with_all_gpus(self, check: str, name: str) -> None:
        outcome = ask(check, framework(H100, name), frameworks={name: "2.20.0"})
        assert outcome.seen == f"{name} sees 8 GPUs"

    def test_fails_with_fewer(self, check: str, name: str) -> None:
        outcome = ask(check, framework(H100, name, device_count=1), frameworks={name: "2.20.0"})
        assert (outcome.status, outcome.seen) == ("fail", f"{name} sees 1 of 8 GPUs")

    def test_is_unknown_where_it_hangs(self, check: str, name: str) -> None:
        assert ask(check, machines.fail(H100, name, status="hung"), frameworks={name: "1"}).status == "unknown"

    def test_is_not_asked_without_a_plan(self, check: str, name: str) -> None:
        assert ask(check, H100).seen == f"no {name} is planned"


def test_code_for_the_gpu_passes() -> None:
    assert ask("fw.torch.arch", H100).seen == "sm_90 runs on 9.0"


def test_code_that_the_driver_compiles_passes() -> None:
    outputs = payload(H100, "torch", targets=["sm_70", "compute_80"])

    assert ask("fw.torch.arch", outputs).seen == "compute_80 runs on 9.0"


def test_no_code_for_a_gpu_names_it_with_both_sides() -> None:
    outputs = payload(
        H100,
        "torch",
        capabilities=["8.0", "12.0"],
        device_count=2,
        targets=["sm_80", "sm_90"],
        names=["A100", "RTX 5090"],
    )
    outcome = ask("fw.torch.arch", outputs)

    assert outcome.subjects == ("GPU 1 (RTX 5090)",)
    assert outcome.seen == "GPU 1 (RTX 5090) has compute capability 12.0, torch was compiled for sm_80, sm_90"


@pytest.mark.parametrize(
    "fields",
    [{"capabilities": []}, {"error": "no module"}, {"targets": ["gfx90a"]}],
    ids=["no-gpu", "error", "not-cuda"],
)
def test_what_torch_does_not_tell_is_unknown(fields: dict[str, object]) -> None:
    assert ask("fw.torch.arch", payload(H100, "torch", **fields), sm=(), ptx=()).status == "unknown"


def test_every_gpu_multiplies() -> None:
    assert ask("fw.torch.matmul", H100).seen == "8 of 8 GPUs multiplied correctly"


def test_a_type_the_gpu_lacks_is_no_fault() -> None:
    machine = machines.old_p100()

    assert ask("fw.torch.matmul", machine, machine="old_p100").status == "pass"


@pytest.mark.parametrize(
    ("check", "test"), [("fw.torch.matmul", "matmul__bf16"), ("fw.torch.cudnn", "conv__cudnn")], ids=["matmul", "cudnn"]
)
class TestWork:
    def test_names_the_gpu_that_is_wrong(self, check: str, test: str) -> None:
        outcome = ask(check, of_gpu(H100, "torch-work", 3, "tests", **{test: "failed: largest error 0.7"}))

        assert (outcome.status, outcome.subjects) == ("fail", (GPU3,))
        assert outcome.seen == f"{GPU3}: {test.replace('__', '-')}: largest error 0.7"

    def test_is_unknown_where_the_probe_hangs(self, check: str, test: str) -> None:
        del test
        assert ask(check, machines.fail(H100, "torch-work", status="hung")).status == "unknown"

    def test_is_unknown_where_no_gpu_worked(self, check: str, test: str) -> None:
        del test
        assert ask(check, payload(H100, "torch-work", gpus=[])).status == "unknown"


def test_every_gpu_convolves_and_a_skipped_one_is_unknown() -> None:
    assert ask("fw.torch.cudnn", H100).seen == "8 of 8 GPUs convolved"
    outputs = of_gpu(H100, "torch-work", 3, "tests", conv__cudnn="skipped: cuDNN is off")
    assert ask("fw.torch.cudnn", outputs).seen == f"{GPU3}: skipped: cuDNN is off"


def test_parts_of_a_divided_gpu_are_not_counted_as_gpus() -> None:
    outputs = machines.xml_gpu(H100, 0, "<current_mig>Disabled", "<current_mig>Enabled")

    assert ask("fw.torch.cuda", payload(outputs, "torch", device_count=1)).status == "pass"


def test_the_sum_over_all_gpus() -> None:
    assert ask("fw.torch.nccl1", H100).status == "pass"
    wrong = ask("fw.torch.nccl1", payload(H100, "torch-nccl", together={"allreduce": "failed: GPU 3 holds 27.0"}))
    assert (wrong.status, wrong.seen) == ("fail", "the all-reduce failed: GPU 3 holds 27.0")


def test_a_sum_that_could_not_begin_fails_and_one_not_tried_is_unknown() -> None:
    began = ask("fw.torch.nccl1", payload(H100, "torch-nccl", error="ncclSystemError"))

    assert began.seen == "the all-reduce could not begin: ncclSystemError"
    assert ask("fw.torch.nccl1", payload(H100, "torch-nccl", together={})).status == "unknown"
    assert ask("fw.torch.nccl1", machines.fail(H100, "torch-nccl", status="hung")).status == "unknown"


def test_one_gpu_adds_nothing_up() -> None:
    assert ask("fw.torch.nccl1", machines.cloud_a10g(), machine="cloud_a10g").status == "skip"


def test_gpus_of_a_framework_that_fails_or_keeps_silent() -> None:
    broken = payload(H100, "torch", error="ImportError: no libcudart", is_available=None, device_count=None)
    silent = payload(H100, "torch", device_count=None)

    assert ask("fw.torch.cuda", broken).seen == "importing torch fails: ImportError: no libcudart"
    assert ask("fw.torch.cuda", silent).seen == "torch can use a GPU and does not say how many"


NO_GPU = {"gpus": 0, "gpu": None}


@pytest.mark.parametrize(
    ("check", "name"), [("fw.tf.devices", "tensorflow"), ("fw.jax.devices", "jax"), ("fw.torch.import", "torch")]
)
@pytest.mark.parametrize(
    ("is_cuda_build", "status"), [(True, "pass"), (False, "fail")], ids=["cuda-build", "processors-only"]
)
def test_build_is_judged_where_no_gpu_is_planned(check, name, is_cuda_build, status) -> None:
    outputs = framework(
        machines.cpu_only(), name, is_available=False, device_count=0, is_cuda_build=is_cuda_build, version="2.20.0"
    )
    planned = {"frameworks": {name: "2.20.0"}, "packages": {}, "cuda": "12.8"}
    outcome = ask(check, outputs, machine="cpu_only", **NO_GPU, **planned)
    assert outcome.status == status
    assert status == "pass" or "processors only" in outcome.seen


def test_build_that_is_not_told_is_unknown() -> None:
    outputs = framework(machines.cpu_only(), "jax", is_available=False, device_count=0)
    planned = {"frameworks": {"jax": "2.20.0"}, "packages": {}, "cuda": "12.8"}
    assert ask("fw.jax.devices", outputs, machine="cpu_only", **NO_GPU, **planned).status == "unknown"


@pytest.mark.parametrize(("check", "name"), [("fw.tf.devices", "tensorflow"), ("fw.jax.devices", "jax")])
def test_framework_of_another_version_than_the_lock_fails(check, name) -> None:
    outcome = ask(check, framework(H100, name, version="2.10.0"), frameworks={name: "2.15.1"}, packages={})
    assert (outcome.status, outcome.seen) == ("fail", f"{name} is 2.10.0")


def test_image_without_code_the_lock_promises_fails() -> None:
    outputs = framework(machines.cpu_only(), "torch", is_available=False, device_count=0, targets=["sm_80"])
    planned = {"frameworks": {"torch": "2.20.0"}, "sm": ("sm_80", "sm_90"), "ptx": ()}
    outcome = ask("fw.torch.arch", outputs, machine="cpu_only", **NO_GPU, **planned)
    assert (outcome.status, outcome.seen) == ("fail", "torch has no code for sm_90")


def test_one_precision_that_was_not_tried_is_unknown() -> None:
    document = json.loads(H100["torch-work"].text.partition("@provision-payload ")[2])
    del document["gpus"][5]["tests"]["matmul-bf16"]
    outcome = ask("fw.torch.matmul", payload(H100, "torch-work", gpus=document["gpus"]))
    assert (outcome.status, "matmul-bf16" in outcome.seen) == ("unknown", True)


def test_reduction_of_some_gpus_fails() -> None:
    outcome = ask("fw.torch.nccl1", payload(H100, "torch-nccl", figures={"ranks": 2}))
    assert (outcome.status, outcome.seen) == ("fail", "2 of 8 GPUs took part in the all-reduce")


def test_torch_that_tells_no_code_is_unknown() -> None:
    assert ask("fw.torch.arch", payload(H100, "torch", targets=[])).status == "unknown"


def test_capability_of_some_gpus_is_no_answer_for_all() -> None:
    outcome = ask("fw.torch.arch", payload(H100, "torch", capabilities=["9.0"]))
    assert (outcome.status, outcome.seen) == ("unknown", "torch tells the compute capability of 1 of 8 GPUs")


@pytest.mark.parametrize(
    ("targets", "capability", "status"),
    [
        pytest.param(["sm_90a"], "9.0", "pass", id="its-own"),
        pytest.param(["sm_100a"], "10.3", "fail", id="a-newer-minor"),
        pytest.param(["compute_90a"], "10.0", "fail", id="ptx-of-another"),
        pytest.param(["compute_100f"], "10.3", "pass", id="ptx-of-the-family"),
        pytest.param(["compute_100f"], "12.0", "fail", id="ptx-of-another-family"),
    ],
)
def test_code_for_one_architecture_runs_on_no_other(targets, capability, status) -> None:
    outputs = payload(H100, "torch", targets=targets, capabilities=[capability] * 8)
    assert ask("fw.torch.arch", outputs).status == status


@pytest.mark.parametrize(
    ("said", "status"),
    [
        pytest.param("skipped: this GPU has no BF16", "pass", id="no-such-type"),
        pytest.param("skipped: out of memory", "unknown", id="another-reason"),
    ],
)
def test_precision_is_left_out_only_where_the_gpu_has_none(said, status) -> None:
    outputs = of_gpu(H100, "torch-work", 5, "tests", matmul__bf16=said)
    assert ask("fw.torch.matmul", outputs).status == status
