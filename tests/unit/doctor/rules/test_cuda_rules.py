"""Rules about CUDA, its libraries and the frameworks: what state proves, and what numbers in messages say."""

from __future__ import annotations

import json

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose, rule_of
from provision.doctor.sign import Sign
from provision.matrix.load import Matrix

MATRIX = Matrix()


def ask(name: str, outputs=None, text: str = "") -> Sign | None:
    host = machines.snapshot(outputs) if outputs is not None else None
    return rule_of(MATRIX.diagnoses[name]).examine(Case(MATRIX, host, texts=[("pasted", text)] if text else ()))


def payload(outputs, probe: str = "torch", **changes):
    """Return a machine whose framework says something else of itself."""
    document = json.loads(outputs[probe].text.partition(" ")[2])
    return machines.replace_output(outputs, probe, text=f"@provision-payload {json.dumps({**document, **changes})}\n")


def environment(outputs, line: str):
    return machines.change(outputs, "environment", "PATH=", f"{line}\nPATH=", 1)


def library(outputs, line: str):
    text = outputs["libraries"].text
    return machines.replace_output(outputs, "libraries", text="\t".join(line.split()) + f"\n{text}")


def without_libcuda(outputs):
    lines = outputs["libraries"].text.splitlines(keepends=True)
    return machines.replace_output(
        outputs, "libraries", text="".join(line for line in lines if "libcuda.so" not in line)
    )


TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"


def test_driver_too_old_names_the_driver_and_the_build_that_would_do():
    sign = ask("cuda.driver-too-old", text=f"PyTorch version: 2.1.2+cu121\n{TOO_OLD}")
    assert sign.confidence == "medium"
    assert "the driver is CUDA 11.4's" in sign.seen
    assert any("525.60.13" in step for step in sign.fix)
    assert any("(cu118)" in step and "provision resolve --torch 2.1 --driver 470." in step for step in sign.fix)
    assert sign.unseen == ("the version of the driver: `nvidia-smi` prints it",)


def test_driver_too_old_from_pasted_table_of_nvidia_smi_is_proved():
    header = "| NVIDIA-SMI 470.82.01    Driver Version: 470.82.01    CUDA Version: 11.4     |"
    sign = ask("cuda.driver-too-old", text=f"torch==2.1.2+cu121\n{header}\n{TOO_OLD}")
    assert sign.confidence == "high"
    assert sign.expected == "driver 525.60.13 or newer, which CUDA 12.1 needs"
    assert any("`provision resolve --torch 2.1 --driver 470.82.01`" in step for step in sign.fix)


INSUFFICIENT = "CUDA error: CUDA driver version is insufficient for CUDA runtime version"


def test_toolkit_beside_torch_is_not_the_cuda_that_torch_was_built_for():
    text = f"torch 2.7.0\ncuda-toolkit 11.8.0\nDriver Version: 535.104.05\n{TOO_OLD.replace('11040', '12020')}"
    sign = ask("cuda.driver-too-old", text=text)
    assert not any("was built for" in line for line in sign.seen)
    assert not any("450.80.02" in step for step in (*sign.fix, sign.expected))


def test_toolkit_that_a_torch_pins_is_the_cuda_that_it_was_built_for():
    sign = ask("cuda.driver-too-old", text="Driver Version: 570.195.03\ntorch 2.11.0\ncuda-toolkit==13.0.2\n")
    assert "torch 2.11.0 was built for CUDA 13.0" in sign.seen


@pytest.mark.parametrize(
    "line", ["tested with driver 525.60.13 on A100", "compatible with driver 525.60.13", "works with driver 525.60.13"]
)
def test_driver_that_something_was_tested_with_is_not_the_loaded_one(line):
    sign = ask("cuda.driver-too-old", text=f"{line}\ntorch 2.7.0+cu126\n{INSUFFICIENT}")
    assert not any("the driver is" in line for line in sign.seen)
    assert sign.fix == ("Upgrade the driver to 525.60.13 or newer.",)


@pytest.mark.parametrize(
    ("lines", "driver"),
    [
        (("Driver Version: 535.104.05", "torch 2.7.0+cu118", INSUFFICIENT), "The driver 535.104.05"),
        (("torch 2.7.0+cu118", TOO_OLD.replace("11040", "12020")), "The driver of CUDA 12.2"),
    ],
)
def test_driver_that_is_new_enough_by_the_text_does_not_agree_with_the_message(lines, driver):
    sign = ask("cuda.driver-too-old", text="\n".join(lines))
    assert sign.confidence == "medium"
    assert sign.fix[0].startswith(f"{driver} runs CUDA 11.8, and the message says that it does not")
    assert not any(step.startswith(("Upgrade", "Or keep")) for step in sign.fix)


def test_ptx_of_a_newer_cuda_needs_the_branch_of_that_cuda():
    text = "Driver Version: 525.60.13\ntorch 2.7.0+cu126\nthe provided PTX was compiled with an unsupported toolchain."
    sign = ask("cuda.driver-too-old", text=text)
    assert sign.fix[0] == "Upgrade the driver to branch 560 or newer, whose own CUDA is 12.6."
    assert "525.60.13" not in sign.expected


def test_driver_too_old_by_state_alone():
    outputs = payload(machines.cloud_a10g(), is_available=False, cuda="13.0", version="2.9.0+cu130")
    sign = ask("cuda.driver-too-old", outputs)
    assert sign.confidence == "high"
    assert sign.seen[0].startswith("the driver is 535.")
    assert "13.0" in sign.expected


def test_driver_below_the_floor_that_works_all_the_same_is_forward_compatibility():
    assert ask("cuda.driver-too-old", payload(machines.cloud_a10g(), cuda="13.0", is_available=True)) is None


def test_no_kernel_image_by_state():
    outputs = payload(machines.hgx_h100(), names=["NVIDIA B200"], capabilities=["10.0"], targets=["sm_80", "sm_90"])
    sign = ask("cuda.no-kernel-image", outputs)
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU 0 (NVIDIA B200)",)
    assert any("provision resolve" in step and "--gpu sm_100" in step for step in sign.fix)


def test_no_kernel_image_accepts_ptx_of_an_older_architecture():
    outputs = payload(machines.hgx_h100(), capabilities=["12.0"], targets=["sm_80", "compute_90"])
    assert ask("cuda.no-kernel-image", outputs) is None


def test_no_kernel_image_keeps_the_driver_where_a_build_allows_it():
    capabilities = {"names": ["A GPU"], "capabilities": ["8.9"], "targets": ["sm_70"]}
    old = payload(machines.cloud_a10g(), **capabilities)
    sign = ask("cuda.no-kernel-image", old)
    assert "--driver 535." in sign.fix[-1]
    newest = payload(machines.cloud_a10g(), names=["A GPU"], capabilities=["12.0"], targets=["sm_90"])
    assert not sign.fix[0].startswith("Upgrade")
    assert "sm_120" in ask("cuda.no-kernel-image", newest).fix[-1]


@pytest.mark.parametrize(
    ("gpu", "told"), [("NVIDIA GeForce RTX 5090", True), ("NVIDIA GeForce RTX 3090", False), ("a GPU", False)]
)
def test_message_of_many_causes_is_no_kernel_image_where_gpu_and_torch_named_beside_it_do_not_fit(gpu, told):
    text = f"RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\ntorch 2.1.0+cu118\nGPU 0: {gpu}\n"
    report = diagnose(Case(MATRIX, None, texts=[("pasted", text)]))
    assert [finding.diagnosis.id for finding in report.causes][:1] == (
        ["cuda.no-kernel-image"] if told else ["cudnn.conflict"]
    )
    assert bool(report.causes[0].fits) is not told


def test_no_kernel_image_for_an_old_gpu_names_a_build_that_still_has_it():
    text = "Tesla P100 with CUDA capability sm_60 is not compatible with the current PyTorch installation."
    sign = ask("cuda.no-kernel-image", text=text)
    build = next(row for row in MATRIX.torch_builds if row.sm and "sm_60" in row.sm)
    assert build.torch in sign.fix[0]


@pytest.mark.parametrize(
    ("name", "outputs", "text", "seen"),
    [
        pytest.param(
            "torch.cpu-build",
            lambda: payload(
                machines.hgx_h100(), is_cuda_build=False, cuda=None, version="2.8.0+cpu", is_available=False
            ),
            "",
            "torch 2.8.0+cpu is a CPU build",
            id="cpu-build",
        ),
        pytest.param(
            "cuda.fabric-not-ready",
            lambda: machines.change(
                machines.hgx_h100(), "fabric-manager", "version is : 580.105.08", "version is : 570.1.2"
            ),
            "",
            "fabric manager is 570.1.2, the driver 580.105.08",
            id="fabric-version",
        ),
        pytest.param(
            "cuda.driver-library-conflict",
            lambda: library(
                machines.hgx_h100(), "libcuda.so.1 /old/libcuda.so.1 libcuda.so.535.104.05 LD_LIBRARY_PATH"
            ),
            "",
            "/old/libcuda.so.1 is 535.104.05, the kernel runs 580.105.08",
            id="older-libcuda",
        ),
        pytest.param(
            "cuda.forward-compatibility",
            lambda: library(
                machines.workstation_rtx4090(), "libcuda.so.1 /c/compat/libcuda.so.1 libcuda.so.590.44.01 ldconfig"
            ),
            "",
            "/c/compat/libcuda.so.1 is loaded for NVIDIA GeForce RTX 4090, which it does not support",
            id="compat-on-geforce",
        ),
        pytest.param(
            "cuda.uvm",
            lambda: machines.change(machines.cloud_a10g(), "modules", "nvidia_uvm", "nvidia_peer"),
            "CUDA_ERROR_UNKNOWN: unknown error",
            "the module nvidia_uvm is not loaded",
            id="uvm-not-loaded",
        ),
        pytest.param(
            "cuda.hidden-devices",
            lambda: environment(machines.hgx_h100(), "CUDA_VISIBLE_DEVICES="),
            "",
            "`CUDA_VISIBLE_DEVICES=` hides every GPU",
            id="hidden-by-empty",
        ),
        pytest.param(
            "cuda.hidden-devices",
            lambda: environment(machines.hgx_h100(), "CUDA_VISIBLE_DEVICES=GPU-deadbeef"),
            "",
            "`GPU-deadbeef` is none of 8 GPUs, and hides every GPU",
            id="hidden-by-uuid",
        ),
        pytest.param(
            "cuda.bad-ordinal",
            lambda: environment(machines.hgx_h100(), "CUDA_VISIBLE_DEVICES=0,8"),
            "",
            "`8` is none of 8 GPUs, and hides all from place 1 on",
            id="ordinal-beyond",
        ),
        pytest.param(
            "cudnn.conflict",
            lambda: library(
                machines.hgx_h100(), "libcudnn.so.9 /usr/local/lib/libcudnn.so.9 libcudnn.so.9.1.0 LD_LIBRARY_PATH"
            ),
            "CUDNN_STATUS_NOT_INITIALIZED",
            "LD_LIBRARY_PATH puts /usr/local/lib/libcudnn.so.9 (9.1.0) before the framework's 9.10.2",
            id="cudnn-in-front",
        ),
        pytest.param(
            "cuda.nvjitlink",
            lambda: library(
                machines.hgx_h100(), "libnvJitLink.so.12 /c/libnvJitLink.so.12 libnvJitLink.so.12.0.140 LD_LIBRARY_PATH"
            ),
            "",
            "/c/libnvJitLink.so.12: it is 12.0.140, the wheel's is 12.8.93, and LD_LIBRARY_PATH puts it first",
            id="nvjitlink-in-front",
        ),
        pytest.param(
            "cuda.no-driver-library",
            lambda: without_libcuda(machines.cloud_a10g()),
            "",
            "and the loader finds no libcuda.so.1",
            id="no-libcuda",
        ),
        pytest.param(
            "cuda.no-driver-library",
            lambda: without_libcuda(
                machines.change(machines.gpu_container(), "environment", "=compute,utility", "=utility")
            ),
            "",
            "NVIDIA_DRIVER_CAPABILITIES is `utility`, which leaves libcuda out",
            id="no-compute-capability",
        ),
        pytest.param(
            "cuda.stub-library",
            lambda: environment(machines.hgx_h100(), "LD_LIBRARY_PATH=/opt/lib:/usr/local/cuda/lib64/stubs"),
            "",
            "/usr/local/cuda/lib64/stubs: a stub for linking is where programs load from",
            id="stubs-in-path",
        ),
        pytest.param(
            "cuda.profiling-denied", machines.hgx_h100, "ERR_NVGPUCTRPERM", "RmProfilingAdminOnly is 1", id="counters"
        ),
        pytest.param(
            "cuda.nvcc-mismatch",
            lambda: machines.change(machines.hgx_h100(), "nvcc", "release 12.8, V12.8.93", "release 11.8, V11.8.89"),
            "The detected CUDA version (11.8) mismatches the version that was used to compile",
            "nvcc is of CUDA 11.8, PyTorch was built for 12.8",
            id="nvcc-major",
        ),
    ],
)
def test_state_proves_it(name, outputs, text, seen):
    sign = ask(name, outputs(), text)
    assert sign.confidence == "high"
    assert any(seen in one for one in sign.seen), sign.seen


@pytest.mark.parametrize(
    ("name", "outputs", "text"),
    [
        pytest.param("torch.cpu-build", machines.hgx_h100, "torch==2.4.1+cpu", id="cuda-build-is-installed"),
        pytest.param("gpu.unified-memory", machines.hgx_h100, "memory.total [MiB], [N/A]", id="gpu-has-memory"),
        pytest.param("mig.no-utilization", machines.hgx_h100, "utilization.gpu [%], [N/A]", id="mig-is-off"),
        pytest.param(
            "cuda.device-order",
            lambda: environment(machines.hgx_h100(), "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
            "Detected different devices in the system: A, B",
            id="order-is-set",
        ),
    ],
)
def test_state_disproves_the_message(name, outputs, text):
    assert ask(name, text=text) is not None
    assert ask(name, outputs(), text) is None


def test_cpu_build_is_right_where_no_gpu_is():
    changed = payload(machines.cpu_only(), is_cuda_build=False, error=None, version="2.8.0+cpu", name="torch")
    assert ask("torch.cpu-build", changed) is None


def test_unloaded_uvm_is_no_fault_before_the_first_cuda_program():
    assert ask("cuda.uvm", machines.change(machines.cloud_a10g(), "modules", "nvidia_uvm", "nvidia_peer")) is None


def test_fabric_by_text_alone_says_what_would_settle_it():
    sign = ask("cuda.fabric-not-ready", text="Error 802: system not yet initialized")
    assert (sign.confidence, sign.unseen) == ("medium", ("whether it runs: `systemctl status nvidia-fabricmanager`",))


def test_order_of_names_proves_another_order():
    outputs = machines.xml_gpu(machines.l40s_pcie(), 0, "<product_name>NVIDIA L40S", "<product_name>NVIDIA L4")
    names = ["NVIDIA L40S", "NVIDIA L4"]
    sign = ask("cuda.device-order", payload(outputs, names=names))
    assert sign.seen[0] == "nvidia-smi begins with NVIDIA L4, PyTorch with NVIDIA L40S"


@pytest.mark.parametrize(
    ("text", "seen", "fix"),
    [
        pytest.param(
            "CUDA out of memory. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including"
            " non-PyTorch memory, this process has 512.00 MiB memory in use.",
            "others hold the rest",
            "",
            id="others",
        ),
        pytest.param(
            "CUDA out of memory. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including"
            " non-PyTorch memory, this process has 77.00 GiB memory in use. 40.00 GiB is reserved by PyTorch"
            " but unallocated.",
            "in pieces too small",
            "expandable_segments:True",
            id="fragments",
        ),
    ],
)
def test_out_of_memory_is_told_apart_by_its_numbers(text, seen, fix):
    sign = ask("cuda.out-of-memory", text=text)
    assert any(seen in one for one in sign.seen)
    assert fix in " ".join(sign.fix)


def test_memory_that_no_process_owns():
    outputs = machines.cloud_a10g()
    total = machines.snapshot(outputs).smi.gpus[0].memory_total_mib
    used = machines.snapshot(outputs).smi.gpus[0].memory_used_mib
    outputs = machines.xml_gpu(outputs, 0, f"<used>{used} MiB</used>", f"<used>{total - 100} MiB</used>")
    sign = ask("cuda.out-of-memory", outputs, "CUDA error: out of memory")
    assert sign.confidence == "high"
    assert f"{total - 100} of {total} MiB are used and nvidia-smi lists no process" in sign.seen


def test_mismatch_of_nvcc_names_the_toolkit_to_install():
    text = "The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.4)."
    sign = ask("cuda.nvcc-mismatch", text=text)
    assert any("`export CUDA_HOME=/usr/local/cuda-12.4`" in step for step in sign.fix)


ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


def test_illegal_access_that_a_sanitizer_found_is_named():
    found = "========= Invalid __global__ read of size 4 bytes\n=========     at gather(float const *)+0x90"
    (finding,) = diagnose(Case(MATRIX, texts=[("pasted", f"{ILLEGAL}\n{found}")])).causes
    assert any("Invalid __global__ read of size 4 bytes" in step for step in finding.fix)
    (finding,) = diagnose(Case(MATRIX, texts=[("pasted", ILLEGAL)])).causes
    assert not any("sanitizer names" in step for step in finding.fix)


def test_illegal_access_stands_below_the_kernels_own_account_of_it():
    xid = "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 31, pid=4242, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"
    report = diagnose(Case(MATRIX, texts=[("pasted", f"{xid}\n{ILLEGAL}")]))
    assert [finding.diagnosis.id for finding in report.causes] == ["xid.application"]
    assert [finding.diagnosis.id for finding in report.causes[0].consequences] == ["cuda.illegal-access"]


DESERIALIZE = "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."


def test_checkpoint_from_a_cpu_build_is_explained_by_the_build():
    outputs = payload(machines.hgx_h100(), version="2.8.0+cpu", cuda=None, is_available=False, is_cuda_build=False)
    report = diagnose(Case(MATRIX, machines.snapshot(outputs), texts=[("pasted", DESERIALIZE)]))
    assert report.causes[0].diagnosis.id == "torch.cpu-build"
    assert [finding.diagnosis.id for finding in report.causes[0].consequences] == ["torch.load-device"]


def test_checkpoint_of_more_gpus_says_how_many_there_are():
    text = "Attempting to deserialize object on CUDA device 2 but torch.cuda.device_count() is 1."
    (finding,) = diagnose(Case(MATRIX, texts=[("pasted", text)])).causes
    assert any(step.startswith("It was saved from GPU 2 and the program sees 1") for step in finding.fix)


_FLASH = "ImportError: /v/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E"


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("NS_14SourceLocationENSt7__cxx1112basic_stringIcE", "It was compiled with the C++11 ABI"),
        ("NS_14SourceLocationESs", "It has the C++ ABI from before C++11"),
        ("v", ""),
    ],
    ids=["new-abi", "old-abi", "no-string"],
)
def test_extension_for_another_torch_names_itself_the_torch_and_the_abi(symbol, said):
    case = Case(MATRIX, machines.snapshot(machines.hgx_h100()), texts=[("pasted", f"{_FLASH}{symbol}")])
    (finding,) = diagnose(case).causes
    wheel = "Take the wheel of flash-attn that was made for torch 2.8.0: "
    assert [step.startswith(wheel) for step in finding.fix if step.startswith("Take the ")] == [True]
    assert [step.partition(" (")[0] for step in finding.fix if "in the symbol" in step] == ([said] if said else [])


def test_extension_without_a_known_wheel_is_named_with_the_torch_it_needs():
    text = f"{_FLASH}v".replace("flash_attn_2_cuda", "_ext")
    (finding,) = diagnose(Case(MATRIX, machines.snapshot(machines.hgx_h100()), texts=[("pasted", text)])).causes
    wheel = "Take the release and the wheel of _ext.cpython-312-x86_64-linux-gnu.so that were made for torch 2.8.0"
    assert [step.startswith(wheel) for step in finding.fix if step.startswith("Take the ")] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        "ImportError: /v/_core.so: undefined symbol: _ZN4llvm5Value7getTypeEv",
        "ImportError: /v/cv2.so: undefined symbol: _ZN2cv3MatC1Ev",
    ],
    ids=["nvjitlink", "llvm", "opencv"],
)
def test_symbol_of_another_library_is_no_matter_of_torch(text):
    assert "torch.extension-abi" not in [row.diagnosis.id for row in diagnose(Case(MATRIX, texts=[("t", text)])).causes]


def test_a_number_that_no_gpu_has_is_why_programs_see_none():
    outputs = environment(machines.hgx_h100(), "CUDA_VISIBLE_DEVICES=99")
    reason = "RuntimeError: No CUDA GPUs are available (CUDA_VISIBLE_DEVICES is '99')"
    outputs = payload(outputs, is_available=False, device_count=0, names=[], capabilities=[], reason=reason)
    assert ask("cuda.hidden-devices", outputs) is None
    report = diagnose(Case(MATRIX, machines.snapshot(outputs)))
    assert report.causes[0].diagnosis.id == "cuda.bad-ordinal"
    # One GPU that is there comes first: programs see it, so that the number is not why one sees none.
    outputs = environment(machines.hgx_h100(), "CUDA_VISIBLE_DEVICES=0,99")
    assert ask("cuda.hidden-devices", payload(outputs, is_available=False, reason=reason)) is not None


def test_a_libcuda_in_front_is_why_programs_find_no_driver():
    outputs = library(machines.hgx_h100(), "libcuda.so.1 /opt/old/libcuda.so.1 libcuda.so.535.54.03 LD_LIBRARY_PATH")
    outputs = payload(outputs, is_available=False, reason="RuntimeError: Found no NVIDIA driver on your system.")
    report = diagnose(Case(MATRIX, machines.snapshot(outputs)))
    cause = report.causes[0]
    assert cause.diagnosis.id == "cuda.driver-library-conflict"
    assert "cuda.no-driver-library" in [finding.diagnosis.id for finding in cause.consequences]
