"""One thing is broken on a healthy machine: the right check fails, the right cause is named, nothing else is blamed.

A row says which machine, what is changed on it, which checks must fail, and which diagnosis must be the first cause.
``note`` is a diagnosis that is told and is no cause, ``explained`` are consequences below the first cause.
``also`` lists other critical checks that the same fault really breaks; any further critical failure is a false alarm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import machines
import pytest
from contradictions import contradictions
from machines import absent, change, fail, kernel_line, replace_output, xml_gpu
from verdicts import verify_hosts

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.matrix.load import Matrix
from provision.probe.output import HUNG
from provision.records import replace
from provision.signals.expectation import Expectation
from provision.verify.engine import choose_checks

MATRIX = Matrix()
MARKER = "@provision-payload "


@dataclass(frozen=True)
class Mutation:
    """One fault."""

    name: str
    mutate: Callable
    checks: tuple[str, ...] = ()
    cause: str = ""
    note: str = ""
    explained: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    machine: str = "hgx_h100"
    expected: Callable[[Expectation], Expectation] = lambda expected: expected


def payload(outputs, probe, **fields):
    """Change fields of the JSON document that a payload printed."""
    head, _, rest = outputs[probe].text.partition(MARKER)
    line, end, tail = rest.partition("\n")
    document = {**json.loads(line), **fields}
    return replace_output(outputs, probe, text=f"{head}{MARKER}{json.dumps(document)}{end}{tail}")


def silent(index):
    """Make nvidia-smi name a GPU and say `N/A` of all else."""
    kept = ("product_name", "minor_number", "uuid", "pci_bus_id")

    def mutate(outputs):
        block = outputs["nvidia-smi-xml"].text.split("<gpu id=")[index + 1]
        new = re.sub(
            r"<(\w+)>[^<>]*[^<>\s][^<>]*</\1>",
            lambda found: found[0] if found[1] in kept else f"<{found[1]}>N/A</{found[1]}>",
            block,
        )
        return change(outputs, "nvidia-smi-xml", block, new)

    return mutate


def work(outputs, probe, gpu, **tests):
    """Change the result of tests of one GPU in a payload."""
    _, _, rest = outputs[probe].text.partition(MARKER)
    document = json.loads(rest.partition("\n")[0])
    for name, result in tests.items():
        document["gpus"][gpu]["tests"][name.replace("_", "-")] = result
    return payload(outputs, probe, gpus=document["gpus"])


def figure(outputs, probe, gpu, **figures):
    """Change a measured value of one GPU in a payload."""
    _, _, rest = outputs[probe].text.partition(MARKER)
    document = json.loads(rest.partition("\n")[0])
    document["gpus"][gpu]["figures"].update(figures)
    return payload(outputs, probe, gpus=document["gpus"])


def variables(outputs, **values):
    """Set variables of the target's environment."""
    text = outputs["environment"].text + "".join(f"{name}={value}\n" for name, value in values.items())
    return replace_output(outputs, "environment", text=text)


def without_line(outputs, probe, part):
    """Drop the lines that hold a text."""
    lines = outputs[probe].text.splitlines(keepends=True)
    kept = [line for line in lines if part not in line]
    assert len(kept) < len(lines), f"`{part}` is not in what {probe} printed"
    return replace_output(outputs, probe, text="".join(kept))


def add_line(outputs, probe, line):
    """Add a line to what a probe printed."""
    return replace_output(outputs, probe, text=f"{outputs[probe].text}{line}\n")


def unit(outputs, name, active="inactive"):
    """Let a service not run."""
    return change(
        outputs,
        "units",
        f"Id={name}.service\nLoadState=loaded\nActiveState=active\nSubState=running",
        f"Id={name}.service\nLoadState=loaded\nActiveState={active}\nSubState=dead",
    )


def no_gpu_tool(outputs, error, code):
    """Let every nvidia-smi call fail alike."""
    for probe in ("nvidia-smi-xml", "nvidia-smi-topology", "nvidia-smi-p2p", "nvlink-status", "nvlink-errors"):
        outputs = fail(outputs, probe, code=code, text=error)
    return outputs


def no_cuda(outputs, reason, error):
    """Let torch and libcuda see no GPU, for one reason."""
    outputs = payload(outputs, "torch", is_available=False, device_count=0, names=[], capabilities=[], reason=reason)
    for probe in ("cuda-work", "torch-work", "torch-nccl"):
        if outputs[probe].status == "ok":
            outputs = payload(outputs, probe, error=error, gpus=[])
    return outputs


_UNLOADED = (
    "gpu.smi.ok",
    "gpu.count",
    "gpu.driver.loaded",
    "gpu.lost",
    "gpu.driver.lib_match",
    "gpu.driver.flavour",
    "gpu.driver.min_for_cuda",
    "fw.torch.cuda",
    "fw.torch.arch",
    "fw.torch.matmul",
    "cuda.smoke",
    "gpu.recovery_action",
    "gpu.ecc.uncorrected",
    "gpu.remap.failure",
    "gpu.remap.count",
    "nvlink.active",
    "fabric.state",
    "fabric.manager",
    "gpu.xid",
    "gpu.sxid",
    "ctr.gpu",
)
"""What cannot be well while the driver does not answer."""


def unload(outputs):
    """A machine on which the kernel module is not loaded."""
    outputs = no_gpu_tool(
        outputs,
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.",
        9,
    )
    for name in ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia "):
        outputs = replace_output(
            outputs,
            "modules",
            text="".join(row for row in outputs["modules"].text.splitlines(True) if not row.startswith(name)),
        )
    outputs = absent(outputs, "driver-version", "driver-params", "driver-gpus")
    lines = [row for row in outputs["module-nvidia"].text.splitlines() if not row.startswith("loaded_version")]
    outputs = replace_output(outputs, "module-nvidia", text="\n".join(lines) + "\n")
    return no_cuda(
        outputs,
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
        "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected",
    )


def mismatch(outputs):
    """Libraries and module on disk of another version than the module in memory."""
    outputs = change(outputs, "libraries", "580.105.08", "580.126.09")
    outputs = change(outputs, "module-nvidia", "disk_version=580.105.08", "disk_version=580.126.09")
    outputs = no_gpu_tool(
        outputs, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126", 18
    )
    outputs = kernel_line(outputs, "NVRM: API mismatch: the client has the version 580.126.09, but")
    return no_cuda(
        outputs,
        "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was "
        "attempted on non supported HW",
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)",
    )


def xid(code, text, pci="0000:5d:00"):
    """A kernel line with an Xid."""
    return lambda outputs: kernel_line(outputs, f"NVRM: Xid (PCI:{pci}): {code}, {text}")


def field(index, name, new, old=None):
    """One element of one GPU in nvidia-smi's document."""

    def mutate(outputs):
        block = outputs["nvidia-smi-xml"].text.split("<gpu id=")[index + 1]
        have = old or re.search(rf"<{name}>(.*?)</{name}>", block)[1]
        return xml_gpu(outputs, index, f"<{name}>{have}</{name}>", f"<{name}>{new}</{name}>")

    return mutate


def both(*steps):
    """Several changes, one after the other."""

    def mutate(outputs):
        for step in steps:
            outputs = step(outputs)
        return outputs

    return mutate


def unkept_clock(outputs):
    """Let neither of the two tools call the clock synchronised."""
    outputs = change(outputs, "clock", "NTPSynchronized=yes", "NTPSynchronized=no")
    return change(outputs, "clock", "chrony_leap=Normal", "chrony_leap=Not synchronised")


def drop_gpu(text: str, index: int) -> str:
    """Take one GPU out of nvidia-smi's document."""
    head, *blocks = text.split("<gpu id=")
    last, tail = blocks[-1].rsplit("</gpu>", 1)
    blocks[-1] = f"{last}</gpu>\n"
    del blocks[index]
    count = len(blocks)
    head = head.replace(f"<attached_gpus>{count + 1}</attached_gpus>", f"<attached_gpus>{count}</attached_gpus>")
    return head + "".join(f"<gpu id={block}" for block in blocks) + tail


def drop_device(text: str, index: int) -> str:
    """Take one GPU off the bus."""
    lines = text.splitlines(keepends=True)
    gpus = [line for line in lines if "class=0302" in line]
    return "".join(line for line in lines if line != gpus[index])


def narrow_pcie(outputs, index: int):
    """Let a GPU run on fewer lanes than it has."""
    lines = outputs["pci"].text.splitlines(keepends=True)
    gpus = [line for line in lines if "class=0302" in line]
    narrow = gpus[index].replace("\twidth=16\t", "\twidth=4\t")
    assert narrow != gpus[index]
    return replace_output(outputs, "pci", text="".join(narrow if line == gpus[index] else line for line in lines))


def slow_nccl(outputs):
    """Divide all bandwidths of the all-reduce by four."""
    rows = []
    for row in outputs["nccl-tests"].text.splitlines():
        line, words = row, row.split()
        if words and words[0].isdigit() and len(words) >= 9:
            words[6:8] = [f"{float(word) / 4:.2f}" for word in words[6:8]]
            if len(words) >= 13:
                words[10:12] = [f"{float(word) / 4:.2f}" for word in words[10:12]]
            line = "  ".join(words)
        rows.append(line)
    return replace_output(outputs, "nccl-tests", text="\n".join(rows) + "\n")


def slow_copies(outputs):
    """Let copies to every GPU be a tenth, in every tool that measured them."""
    _, _, rest = outputs["torch-work"].text.partition(MARKER)
    document = json.loads(rest.partition("\n")[0])
    for gpu in document["gpus"]:
        gpu["figures"].update(h2d_gb_s=3.1, d2h_gb_s=3.2)
    return absent(payload(outputs, "torch-work", gpus=document["gpus"]), "nvbandwidth")


def slow_pair(outputs):
    """Let one pair of GPUs copy at a tenth of the others."""
    document = json.loads(outputs["nvbandwidth"].text)
    for case in document["nvbandwidth"]["testcases"]:
        if case["name"].startswith("device_to_device"):
            case["bandwidth_matrix"][1][2] = "36.50"
    return replace_output(outputs, "nvbandwidth", text=json.dumps(document))


def fail_diagnosis(outputs, probe, name):
    """Let one test of DCGM fail on its first GPU."""
    head, found, tail = outputs[probe].text.partition(f'"name": "{name}"')
    assert found, f"{probe} has no test {name}"
    return replace_output(outputs, probe, text=head + found + tail.replace('"Pass"', '"Fail"', 1))


MUTATIONS = [
    Mutation("version-skew", mismatch, ("gpu.driver.lib_match",), "driver.mismatch", also=_UNLOADED),
    Mutation(
        "version-skew-after-reboot",
        both(mismatch, lambda o: replace_output(o, "initramfs", text="580.105.08\n")),
        ("gpu.driver.lib_match",),
        "driver.stale-initramfs",
        also=_UNLOADED,
    ),
    Mutation(
        "module-not-built",
        both(
            unload,
            lambda o: without_line(o, "dkms", "6.8.0-87-generic"),
            lambda o: replace_output(o, "module-nvidia", text="modinfo=absent\n"),
        ),
        ("gpu.driver.loaded",),
        "driver.not-built",
        also=_UNLOADED,
    ),
    Mutation(
        "secure-boot",
        both(
            unload,
            lambda o: change(o, "secure-boot", "SecureBoot disabled", "SecureBoot enabled"),
            lambda o: change(o, "module-nvidia", "signer=DKMS module signing key", "signer="),
            lambda o: kernel_line(o, "Loading of module with unavailable key is rejected"),
        ),
        ("gpu.driver.loaded", "host.secureboot"),
        "driver.secure-boot",
        also=_UNLOADED,
    ),
    Mutation(
        "nouveau",
        both(unload, lambda o: add_line(o, "modules", "nouveau 2449408 1 - Live 0x0000000000000000")),
        ("gpu.driver.nouveau", "gpu.driver.loaded"),
        "driver.nouveau",
        also=_UNLOADED,
    ),
    Mutation(
        "one-gpu-gone-from-nvidia-smi",
        lambda o: replace_output(o, "nvidia-smi-xml", text=drop_gpu(o["nvidia-smi-xml"].text, 5)),
        ("gpu.count",),
        "gpu.missing",
        also=("gpu.lost", "nvlink.active", "fw.torch.cuda"),
    ),
    Mutation(
        "one-gpu-gone-from-the-bus",
        both(
            lambda o: replace_output(o, "nvidia-smi-xml", text=drop_gpu(o["nvidia-smi-xml"].text, 7)),
            lambda o: replace_output(o, "pci", text=drop_device(o["pci"].text, 7)),
        ),
        ("gpu.pci.count", "gpu.count"),
        also=("gpu.lost", "nvlink.active", "fw.torch.cuda"),
    ),
    Mutation(
        "fallen-off-the-bus",
        both(
            xid(79, "pid=4711, name=python, GPU has fallen off the bus."),
            xid(45, "pid=4711, name=python, Ch 00000008"),
        ),
        ("gpu.xid",),
        "xid.79",
    ),
    Mutation("ecc-double-bit", xid(48, "pid=1, name=x, An uncorrectable double bit error"), ("gpu.xid",), "xid.48"),
    Mutation("row-remap-failed-xid", xid(64, "Row remapper: failure"), ("gpu.xid",), "xid.64"),
    Mutation("contained-ecc", xid(94, "Contained: SM (0x1). RST: No, D-RST: No"), (), "xid.94", also=("gpu.xid",)),
    Mutation("uncontained-ecc", xid(95, "Uncontained: FB (0x5). RST: Yes, D-RST: No"), ("gpu.xid",), "xid.95"),
    Mutation("nvlink-xid", xid(74, "pid=1, NVLink: fatal error detected on link 4"), ("gpu.xid",), "xid.nvlink"),
    Mutation(
        "gsp-hang",
        xid(119, "pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
        ("gpu.xid",),
        "xid.gsp-hang",
    ),
    Mutation("context-switch-timeout", xid(109, "pid=1, name=x, Ch 0, CTX SWITCH TIMEOUT"), ("gpu.xid",), "xid.109"),
    Mutation("application-fault", xid(31, "pid=1, name=python, MMU Fault: ENGINE GRAPHICS"), (), "xid.application"),
    Mutation("microcontroller-halt", xid(62, "pid=1, 2027 0000a01c"), ("gpu.xid",), "xid.microcontroller"),
    Mutation("power-cable", xid(54, "pid=1, name=x, aux power is not connected"), ("gpu.xid",), "xid.54"),
    Mutation(
        "driver-asks-for-a-reset",
        both(
            xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
            field(3, "gpu_recovery_action", "Reset"),
        ),
        ("gpu.recovery_action",),
        "xid.154",
        also=("gpu.xid",),
    ),
    Mutation(
        "xid-storm",
        both(*(xid(79, "GPU has fallen off the bus.", f"0000:{bus}:00") for bus in ("18", "2a", "3a") * 40)),
        ("gpu.xid",),
        "xid.79",
    ),
    Mutation(
        "nvswitch-fatal",
        lambda o: kernel_line(
            o, "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 12028, Fatal, Link 44 egress non-posted PRIV error"
        ),
        ("gpu.sxid",),
        "sxid.fatal",
    ),
    Mutation("remap-pending", field(3, "remapped_row_pending", "Yes"), ("gpu.remap.pending",), "gpu.remap-pending"),
    Mutation("remap-failure", field(3, "remapped_row_failure", "Yes"), ("gpu.remap.failure",), "xid.64"),
    Mutation("remaps-used-up", field(2, "remapped_row_unc", "600"), ("gpu.remap.count",), "xid.64"),
    Mutation("uncorrectable-ecc", field(1, "dram_uncorrectable", "2"), ("gpu.ecc.uncorrected",), "xid.48"),
    Mutation("sram-threshold", field(1, "sram_threshold_exceeded", "Yes"), ("gpu.ecc.sram_threshold",), "xid.48"),
    Mutation(
        "ecc-off",
        both(field(0, "current_ecc", "Disabled"), field(0, "pending_ecc", "Disabled")),
        ("gpu.ecc.mode",),
        "gpu.ecc-off",
        expected=lambda e: replace(e, is_ecc=True),
    ),
    Mutation("recovery-action", field(6, "gpu_recovery_action", "Reset"), ("gpu.recovery_action",), "xid.154"),
    Mutation(
        "persistence-off", field(0, "persistence_mode", "Disabled"), ("gpu.persistence",), note="gpu.persistence-off"
    ),
    Mutation("too-hot", field(4, "gpu_temp", "93 C"), ("gpu.temp",), note="gpu.thermal-slowdown"),
    Mutation(
        "thermal-slowdown",
        lambda o: xml_gpu(
            o,
            2,
            "<clocks_event_reason_hw_thermal_slowdown>Not Active",
            "<clocks_event_reason_hw_thermal_slowdown>Active",
        ),
        ("gpu.throttle",),
        "gpu.thermal-slowdown",
    ),
    Mutation(
        "power-brake",
        lambda o: xml_gpu(
            o,
            2,
            "<clocks_event_reason_hw_power_brake_slowdown>Not Active",
            "<clocks_event_reason_hw_power_brake_slowdown>Active",
        ),
        ("gpu.throttle",),
        "gpu.power-brake",
    ),
    Mutation("wrong-model", field(0, "product_name", "NVIDIA A100-SXM4-80GB"), ("gpu.model",)),
    Mutation(
        "mig-left-on", field(0, "current_mig", "Enabled"), ("gpu.mig",), expected=lambda e: replace(e, is_mig=False)
    ),
    Mutation(
        "gsp-of-another-version", field(0, "gsp_firmware_version", "570.195.03"), ("gpu.gsp",), "driver.gsp-firmware"
    ),
    Mutation(
        "gpu-is-lost",
        both(
            *(field(5, name, "GPU is lost") for name in ("gpu_temp", "total", "gpu_util")),
            lambda o: replace_output(o, "nvidia-smi-xml", status="failed", code=15),
        ),
        ("gpu.lost", "gpu.smi.ok"),
        "gpu.lost",
    ),
    Mutation(
        "pcie-narrow",
        both(lambda o: narrow_pcie(o, 2), field(2, "current_link_width", "4x")),
        ("gpu.pcie.width",),
        "pci.width",
    ),
    Mutation(
        "pcie-slow-under-load",
        lambda o: figure(o, "torch-work", 1, pcie_gen_under_load=3),
        ("gpu.pcie.gen_load",),
        "pci.generation",
    ),
    Mutation(
        "aer-fatal",
        lambda o: kernel_line(
            o,
            "pcieport 0000:16:01.0: AER: Multiple Uncorrected (Fatal) error received: 0000:18:00.0",
        ),
        ("gpu.pcie.aer",),
        "pci.aer",
    ),
    Mutation(
        "acs-on",
        lambda o: change(o, "lspci", "SrcValid-", "SrcValid+"),
        ("gpu.iommu_acs",),
        "nccl.acs",
    ),
    Mutation(
        "device-node-missing",
        lambda o: without_line(o, "device-nodes", " /dev/nvidia4"),
        ("gpu.devnodes",),
        "driver.device-nodes",
    ),
    Mutation(
        "control-node-missing",
        both(
            lambda o: without_line(o, "device-nodes", " /dev/nvidiactl"),
            lambda o: no_cuda(o, "No CUDA GPUs are available", "CUDA_ERROR_NO_DEVICE (100)"),
        ),
        ("gpu.devnodes", "fw.torch.cuda"),
        "driver.device-nodes",
        also=("fw.torch.arch", "cuda.smoke", "fw.torch.matmul"),
    ),
    Mutation(
        "device-node-closed",
        lambda o: change(o, "device-nodes", "crw-rw-rw- 1 0 0 195,   4", "crw-rw---- 1 0 0 195,   4"),
        ("gpu.devnodes",),
        "driver.device-nodes",
    ),
    Mutation(
        "uvm-missing",
        both(
            lambda o: without_line(o, "device-nodes", "nvidia-uvm"),
            lambda o: without_line(o, "modules", "nvidia_uvm 1740800"),
            lambda o: no_cuda(
                o,
                "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
                "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
                "CUDA_ERROR_UNKNOWN (999)",
            ),
        ),
        ("gpu.devnodes",),
        "cuda.uvm",
        also=("fw.torch.cuda", "fw.torch.arch", "cuda.smoke", "fw.torch.matmul"),
    ),
    Mutation(
        "nvidia-smi-hangs",
        lambda o: fail(fail(o, "nvidia-smi-xml", status=HUNG), "nvidia-smi-topology", status=HUNG),
        (),
        "driver.hung",
        also=_UNLOADED,
    ),
    Mutation("wrong-driver", lambda o: o, ("gpu.driver.version",), expected=lambda e: replace(e, driver="575.57.08")),
    Mutation(
        "driver-below-what-the-stack-needs",
        lambda o: o,
        ("gpu.driver.min_for_cuda",),
        expected=lambda e: replace(e, driver_minimum="590.44.01"),
    ),
    Mutation(
        "driver-too-old-for-cuda",
        lambda o: no_cuda(
            o,
            "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
            "CUDA_ERROR_INSUFFICIENT_DRIVER (35)",
        ),
        ("fw.torch.cuda",),
        "cuda.driver-too-old",
        also=("fw.torch.arch", "cuda.smoke", "fw.torch.matmul", "gpu.driver.min_for_cuda"),
        machine="l40s_pcie",
    ),
    Mutation(
        "cpu-build-of-torch",
        lambda o: payload(
            o,
            "torch",
            version="2.8.0+cpu",
            is_cuda_build=False,
            cuda=None,
            cudnn=None,
            is_available=False,
            device_count=0,
            names=[],
            capabilities=[],
            targets=[],
            reason="Torch not compiled with CUDA enabled",
        ),
        ("fw.torch.cuda", "fw.torch.import"),
        "torch.cpu-build",
        also=("fw.torch.arch",),
    ),
    Mutation(
        "no-kernel-for-this-gpu",
        both(
            lambda o: payload(o, "torch", targets=["sm_60", "sm_70", "sm_75"]),
            lambda o: work(
                o,
                "torch-work",
                0,
                matmul_fp32="failed: CUDA error: no kernel image is available for execution on the device",
            ),
        ),
        ("fw.torch.arch", "fw.torch.matmul"),
        "cuda.no-kernel-image",
    ),
    Mutation(
        "hidden-by-the-environment",
        both(
            lambda o: variables(o, CUDA_VISIBLE_DEVICES="-1"),
            lambda o: no_cuda(o, "No CUDA GPUs are available", "CUDA_ERROR_NO_DEVICE (100)"),
        ),
        ("env.visible", "fw.torch.cuda"),
        "cuda.hidden-devices",
        also=("fw.torch.arch", "cuda.smoke", "fw.torch.matmul"),
    ),
    Mutation(
        "stub-library",
        lambda o: add_line(
            variables(o, LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs"),
            "libraries",
            "libcuda.so.1\t/usr/local/cuda/lib64/stubs/libcuda.so.1\tlibcuda.so\tLD_LIBRARY_PATH",
        ),
        ("cuda.libs",),
        "cuda.stub-library",
    ),
    Mutation(
        "wrong-cudnn",
        both(
            lambda o: payload(o, "torch", cudnn="8.9.2"),
            lambda o: work(o, "torch-work", 0, conv_cudnn="failed: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
            lambda o: add_line(
                variables(o, LD_LIBRARY_PATH="/opt/old/lib"),
                "libraries",
                "libcudnn.so.8\t/opt/old/lib/libcudnn.so.8\tlibcudnn.so.8.9.2\tLD_LIBRARY_PATH",
            ),
        ),
        ("cuda.cudnn", "fw.torch.cudnn"),
        "cudnn.conflict",
    ),
    Mutation(
        "old-nvjitlink-first",
        both(
            lambda o: add_line(
                variables(o, LD_LIBRARY_PATH="/usr/local/cuda-12.0/lib64"),
                "libraries",
                "libnvJitLink.so.12\t/usr/local/cuda-12.0/lib64/libnvJitLink.so.12\tlibnvJitLink.so.12.0.76\tLD_LIBRARY_PATH",
            ),
            lambda o: payload(
                o,
                "torch",
                error="ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1",
                is_available=None,
                version=None,
            ),
        ),
        ("fw.torch.import", "cuda.libs"),
        "cuda.nvjitlink",
        also=("fw.torch.cuda", "fw.torch.arch"),
    ),
    Mutation(
        "torch-of-two-releases",
        lambda o: payload(
            o,
            "torch",
            error="ImportError: libtorch_python.so: undefined symbol: _ZN3c104cuda9SetDeviceEa",
            is_available=None,
            version=None,
        ),
        ("fw.torch.import",),
        "torch.extension-abi",
        also=("fw.torch.cuda", "fw.torch.arch"),
    ),
    Mutation(
        "torch-missing",
        lambda o: payload(
            o, "torch", version=None, error="ModuleNotFoundError: No module named 'torch'", is_available=None
        ),
        ("fw.torch.import",),
        also=("fw.torch.cuda", "fw.torch.arch"),
    ),
    Mutation(
        "matmul-wrong",
        lambda o: work(o, "torch-work", 6, matmul_bf16="failed: the largest error is 14.2"),
        ("fw.torch.matmul",),
        "gpu.failed-test",
    ),
    Mutation(
        "vector-add-wrong",
        lambda o: work(o, "cuda-work", 2, vector_add="failed: 17 of 1024 values are wrong"),
        ("cuda.smoke",),
        "gpu.failed-test",
    ),
    Mutation(
        "allreduce-wrong",
        lambda o: payload(o, "torch-nccl", together={"allreduce": "failed: 17 of 1048576 sums are wrong"}),
        ("fw.torch.nccl1",),
        "gpu.failed-test",
    ),
    Mutation(
        "matmul-out-of-bounds",
        lambda o: work(o, "torch-work", 6, matmul_bf16="failed: CUDA error: an illegal memory access was encountered"),
        ("fw.torch.matmul",),
        "cuda.illegal-access",
    ),
    Mutation(
        "allreduce-loses-a-rank",
        lambda o: payload(
            o,
            "torch-nccl",
            together={"allreduce": "failed: NCCL error: remote process exited or there was a network error"},
        ),
        ("fw.torch.nccl1",),
        "nccl.remote-error",
    ),
    Mutation(
        "fabric-manager-down",
        both(
            lambda o: unit(o, "nvidia-fabricmanager"),
            lambda o: change(o, "nvidia-smi-xml", "<state>Completed</state>", "<state>In Progress</state>"),
            lambda o: no_cuda(
                o,
                "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet "
                "initialized",
                "CUDA_ERROR_SYSTEM_NOT_READY (802)",
            ),
        ),
        ("fabric.manager", "fabric.state"),
        "cuda.fabric-not-ready",
        also=("fw.torch.cuda", "fw.torch.arch", "cuda.smoke", "fw.torch.matmul"),
    ),
    Mutation(
        "fabric-manager-down-where-no-switch-shows",
        both(
            lambda o: unit(o, "nvidia-fabricmanager"),
            lambda o: change(o, "nvidia-smi-xml", "<state>Completed</state>", "<state>In Progress</state>"),
        ),
        ("fabric.manager", "fabric.state"),
        "cuda.fabric-not-ready",
        machine="hgx_b200",
    ),
    Mutation(
        "gpu-that-answers-nothing",
        silent(3),
        ("gpu.lost",),
        "gpu.lost",
        also=(
            "fabric.state",
            "gpu.ecc.uncorrected",
            "gpu.recovery_action",
            "gpu.remap.count",
            "gpu.remap.failure",
            "gpu.remap.pending",
        ),
    ),
    Mutation(
        "fabric-manager-of-another-version",
        lambda o: change(o, "fabric-manager", "580.105.08", "580.95.05"),
        ("fabric.manager",),
        "cuda.fabric-not-ready",
    ),
    Mutation(
        "nvlink-replays-rise",
        lambda o: change(o, "nvlink-errors-later", "Link 2: Replay Errors: 0", "Link 2: Replay Errors: 5", 1),
        ("nvlink.errors",),
    ),
    Mutation(
        "nvlink-inactive",
        lambda o: change(o, "nvlink-status", "Link 4: 26.562 GB/s", "Link 4: <inactive>", 1),
        ("nvlink.active",),
        "xid.nvlink",
    ),
    Mutation(
        "full-shm",
        lambda o: change(
            o,
            "file-systems",
            "1056558960         0 1056558960       0% /dev/shm",
            "     65536     65536          0     100% /dev/shm",
        ),
        ("ctr.shm",),
        "container.shm",
        machine="hgx_h100",
    ),
    Mutation(
        "no-container-runtime",
        both(
            lambda o: replace_output(o, "docker-config", text="{}"),
            lambda o: absent(o, "toolkit", "toolkit-config", "cdi", "containerd-config"),
            lambda o: change(o, "docker-info", "nvidia", "other"),
        ),
        ("ctr.runtime",),
        note="container.no-toolkit",
    ),
    Mutation(
        "stale-cdi",
        both(
            lambda o: change(o, "cdi", "580.105.08", "570.195.03"),
            lambda o: replace_output(o, "docker-config", text='{"features": {"cdi": true}}'),
            lambda o: change(absent(o, "containerd-config"), "docker-info", "nvidia", "other"),
        ),
        ("ctr.runtime",),
        "container.stale-cdi",
    ),
    Mutation(
        "container-without-gpus",
        lambda o: fail(
            o,
            "container-gpu",
            code=125,
            error='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        ),
        ("ctr.gpu",),
        "container.no-toolkit",
    ),
    Mutation(
        "memlock",
        lambda o: change(o, "limits", "memlock_kib unlimited", "memlock_kib 64"),
        ("host.memlock",),
        "nccl.memlock",
    ),
    Mutation(
        "rdma-port-down",
        both(
            lambda o: change(o, "infiniband", "mlx5_3 1 state 4: ACTIVE", "mlx5_3 1 state 1: DOWN"),
            lambda o: change(o, "infiniband", "mlx5_3 1 phys_state 5: LinkUp", "mlx5_3 1 phys_state 2: Polling"),
        ),
        ("net.rdma.links",),
        "rdma.port",
    ),
    Mutation(
        "rdma-port-slow",
        lambda o: change(o, "infiniband", "mlx5_3 1 rate 400 Gb/sec (4X NDR)", "mlx5_3 1 rate 200 Gb/sec (4X HDR)"),
        ("net.rdma.links",),
        "rdma.port",
    ),
    Mutation(
        "peermem-missing",
        lambda o: without_line(o, "modules", "nvidia_peermem 16384"),
        ("net.peermem",),
        "nccl.no-rdma",
        machine="hgx_a100",
    ),
    Mutation(
        "firewall",
        lambda o: without_line(o, "firewall", "10.20.0.0/24"),
        ("net.firewall",),
        "nccl.firewall",
        expected=lambda e: replace(e, cluster_subnet="10.20.0.0/24"),
    ),
    Mutation(
        "ports-silent",
        lambda o: change(o, "ports", "gpu002 50500 open", "gpu002 50500 silent"),
        ("net.ports",),
        "nccl.firewall",
    ),
    Mutation("clock-off", unkept_clock, ("net.clock",)),
    Mutation("allreduce-slow", slow_nccl, ("perf.nccl.node",), "nccl.slow"),
    Mutation(
        "allreduce-slow-over-a-dead-link",
        both(slow_nccl, lambda o: change(o, "nvlink-status", "Link 4: 26.562 GB/s", "Link 4: <inactive>", 1)),
        ("perf.nccl.node", "nvlink.active"),
        "xid.nvlink",
        explained=("nccl.slow",),
    ),
    Mutation(
        "allreduce-slow-through-the-processor",
        both(slow_nccl, lambda o: change(o, "lspci", "SrcValid-", "SrcValid+")),
        ("perf.nccl.node", "gpu.iommu_acs"),
        "nccl.acs",
        explained=("nccl.slow",),
    ),
    Mutation(
        "address-translation-on",
        lambda o: change(o, "command-line", "iommu=pt", "intel_iommu=on"),
        ("gpu.iommu_acs",),
        "nccl.iommu",
    ),
    Mutation(
        "all-rdma-ports-slow",
        lambda o: change(o, "infiniband", "rate 400 Gb/sec (4X NDR)", "rate 200 Gb/sec (4X HDR)"),
        ("net.rdma.links",),
        "rdma.port",
    ),
    Mutation("gemm-slow", lambda o: figure(o, "torch-work", 3, **{"gemm-bf16_tflops": 210.0}), ("perf.gemm",)),
    Mutation("copy-slow", slow_copies, ("perf.h2d",)),
    Mutation("dcgm-fails", lambda o: change(o, "dcgmi-diag", '"Pass"', '"Fail"', 1), ("dcgm.diag1",)),
    Mutation("exporter-silent", lambda o: replace_output(o, "exporter", text="# HELP up x\nup 1\n"), ("mon.exporter",)),
    Mutation("textfile-stale", lambda o: replace_output(o, "textfile", text="86400\n"), ("mon.textfile",)),
    Mutation(
        "unheld-packages", lambda o: replace_output(o, "holds", text="unattended yes\n"), ("host.unattended_upgrades",)
    ),
    Mutation(
        "newer-kernel-waits",
        both(
            lambda o: add_line(o, "kernels", "6.8.0-90-generic"),
            lambda o: replace_output(o, "reboot-required", text="yes\nlinux-image-6.8.0-90-generic\n"),
        ),
        ("host.kernel_running", "host.reboot_pending"),
    ),
    Mutation(
        "reboot-pending",
        lambda o: replace_output(o, "reboot-required", text="yes\nlinux-base\n"),
        ("host.reboot_pending",),
    ),
    Mutation("wrong-system", lambda o: change(o, "os-release", "22.04", "20.04"), ("host.os",)),
    Mutation(
        "proprietary-on-blackwell",
        both(
            lambda o: change(o, "driver-version", "Open Kernel Module for x86_64", "x86_64 Kernel Module"),
            lambda o: change(o, "nvidia-smi-xml", "NVIDIA H100 80GB HBM3", "NVIDIA B200"),
            lambda o: change(o, "pci", "2330", "2901"),
        ),
        ("gpu.driver.flavour",),
        "driver.open-required",
        also=("nvlink.active",),
        expected=lambda e: replace(e, gpu=None),
    ),
    Mutation("retired-pages", field(0, "retired_count", "64"), ("gpu.retired",), "xid.64", machine="old_p100"),
    Mutation("a10g-narrower-than-planned", lambda o: o, (), machine="cloud_a10g"),
    Mutation(
        "geforce-forward-compatibility",
        both(
            lambda o: add_line(
                variables(o, LD_LIBRARY_PATH="/usr/local/cuda/compat"),
                "libraries",
                "libcuda.so.1\t/usr/local/cuda/compat/libcuda.so.1\tlibcuda.so.580.105.08\tLD_LIBRARY_PATH",
            ),
            lambda o: no_cuda(
                o,
                "Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted "
                "on non supported HW",
                "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)",
            ),
        ),
        ("cuda.compat",),
        "cuda.forward-compatibility",
        machine="workstation_rtx4090",
        also=("fw.torch.cuda", "fw.torch.arch", "cuda.smoke", "fw.torch.matmul", "gpu.driver.lib_match"),
    ),
    Mutation(
        "container-lost-its-gpus",
        both(
            lambda o: no_gpu_tool(o, "Failed to initialize NVML: Unknown Error", 255),
            lambda o: no_cuda(o, "No CUDA GPUs are available", "CUDA_ERROR_NO_DEVICE (100)"),
        ),
        ("gpu.smi.ok",),
        "container.cgroup-reload",
        machine="gpu_container",
        also=_UNLOADED,
    ),
    # Checks and rules that the faults above do not reach
    Mutation(
        "links-to-nodes-missing",
        lambda o: without_line(o, "device-nodes", "/dev/char/"),
        ("gpu.devchar", "ctr.cgroup"),
    ),
    Mutation(
        "container-loses-its-gpus-by-a-reload",
        both(
            lambda o: without_line(o, "device-nodes", "/dev/char/"),
            lambda o: fail(o, "daemon-reload", code=255, text="Failed to initialize NVML: Unknown Error"),
        ),
        ("ctr.daemon_reload", "ctr.cgroup"),
        "container.cgroup-reload",
    ),
    Mutation(
        "shm-of-docker-is-full",
        both(
            lambda o: change(o, "limits", "shm_kib 1056558960", "shm_kib 65536"),
            lambda o: change(
                o,
                "file-systems",
                "1056558960         0 1056558960       0% /dev/shm",
                "     65536     65536          0     100% /dev/shm",
            ),
        ),
        ("ctr.shm",),
        "container.shm",
        machine="gpu_container",
    ),
    Mutation(
        "no-cgroups",
        both(
            lambda o: change(o, "toolkit-config", "#no-cgroups = false", "no-cgroups = true"),
            lambda o: fail(o, "container-gpu", code=255, text="Failed to initialize NVML: Unknown Error"),
        ),
        ("ctr.gpu",),
        "container.no-cgroups",
    ),
    Mutation(
        "image-of-a-newer-cuda",
        lambda o: fail(
            o,
            "container-gpu",
            code=125,
            error="nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.2, please update",
        ),
        ("ctr.gpu",),
        "container.cuda-requirement",
    ),
    Mutation(
        "sandbox-forbids-the-nodes",
        lambda o: no_cuda(o, "OS call failed or operation not supported on this OS", "cuInit returned 304"),
        ("fw.torch.cuda",),
        "container.device-policy",
        machine="gpu_container",
        also=("fw.torch.arch", "cuda.smoke", "fw.torch.matmul"),
    ),
    Mutation(
        "another-nccl",
        lambda o: payload(o, "torch", nccl="2.20.5"),
        ("cuda.nccl",),
    ),
    Mutation(
        "another-compiler",
        lambda o: change(
            change(o, "nvcc", "release 12.8, V12.8.93", "release 11.8, V11.8.89"),
            "nvcc",
            "cuda_12.8.r12.8",
            "cuda_11.8.r11.8",
        ),
        ("cuda.nvcc",),
        note="cuda.nvcc-mismatch",
    ),
    Mutation(
        "memory-test-fails",
        lambda o: fail_diagnosis(o, "dcgmi-diag-2", "memory"),
        ("dcgm.diag2",),
        "gpu.failed-test",
    ),
    Mutation(
        "stress-test-fails",
        lambda o: fail_diagnosis(o, "dcgmi-diag-3", "targeted_stress"),
        ("dcgm.diag3",),
        "gpu.failed-test",
    ),
    Mutation(
        "no-service-for-shared-memory-of-nodes",
        both(
            lambda o: change(o, "nvidia-smi-xml", "NVIDIA B200", "NVIDIA GB200"),
        ),
        ("fabric.imex",),
        machine="hgx_b200",
        also=("nvlink.active",),
        expected=lambda e: replace(e, gpu=None),
    ),
    Mutation(
        "tensorflow-sees-no-gpu",
        lambda o: payload(
            o, "tensorflow", error=None, version="2.19.0", is_cuda_build=True, is_available=False, device_count=0
        ),
        ("fw.tf.devices",),
        expected=lambda e: replace(e, frameworks={**e.frameworks, "tensorflow": "2.19.0"}),
    ),
    Mutation(
        "jax-sees-no-gpu",
        lambda o: payload(
            o,
            "jax",
            error=None,
            version="0.6.0",
            is_cuda_build=False,
            is_available=False,
            device_count=0,
            reason="An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed.",
        ),
        ("fw.jax.devices",),
        "torch.cpu-build",
        expected=lambda e: replace(e, frameworks={**e.frameworks, "jax": "0.6.0"}),
    ),
    Mutation("compute-mode", field(2, "compute_mode", "Prohibited"), ("gpu.compute_mode",)),
    Mutation("many-corrected-errors", field(3, "dram_correctable", "90000000", "0"), ("gpu.ecc.corrected",), "xid.92"),
    Mutation(
        "power-limit-lowered",
        both(
            field(3, "current_power_limit", "350.00 W"),
            lambda o: xml_gpu(
                o,
                3,
                "<clocks_event_reason_sw_power_cap>Not Active",
                "<clocks_event_reason_sw_power_cap>Active",
            ),
        ),
        ("gpu.power.limit",),
        "gpu.power-cap",
    ),
    Mutation(
        "log-full-of-mismatches",
        both(
            *(
                lambda o: kernel_line(o, "NVRM: API mismatch: the client has the version 570.10.01, but")
                for _ in range(40)
            )
        ),
        ("host.hugelog",),
        note="driver.mismatch",
    ),
    Mutation(
        "link-that-flaps",
        both(*(lambda o: kernel_line(o, "mlx5_core 0000:1a:00.0 ib0: Lost carrier") for _ in range(6))),
        ("net.rdma.flap",),
        "rdma.flap",
    ),
    Mutation(
        "nvlink-replays",
        both(
            lambda o: change(o, "nvlink-errors", "Link 2: Replay Errors: 0", "Link 2: Replay Errors: 5", 1),
            lambda o: change(o, "nvlink-errors-later", "Link 2: Replay Errors: 0", "Link 2: Replay Errors: 5", 1),
        ),
        (),
        note="xid.nvlink",
    ),
    Mutation("one-pair-copies-slowly", slow_pair, ("perf.p2p",), "nccl.slow"),
    Mutation(
        "no-peer-access",
        lambda o: change(o, "nvidia-smi-p2p", "OK\t", "NS\t", 3),
        ("topo.p2p",),
        "nccl.no-p2p",
    ),
    Mutation(
        "number-of-no-gpu",
        lambda o: variables(o, CUDA_VISIBLE_DEVICES="0,9"),
        ("env.visible",),
        "cuda.bad-ordinal",
    ),
    Mutation(
        "older-driver-library-first",
        both(
            lambda o: add_line(
                variables(o, LD_LIBRARY_PATH="/opt/old"),
                "libraries",
                "libcuda.so.1\t/opt/old/libcuda.so.1\tlibcuda.so.535.104.05\tLD_LIBRARY_PATH",
            ),
            lambda o: no_cuda(
                o,
                "Error 803: system has unsupported display driver / cuda driver combination",
                "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
            ),
        ),
        ("fw.torch.cuda",),
        "cuda.driver-library-conflict",
        also=("fw.torch.arch", "cuda.smoke", "fw.torch.matmul", "gpu.driver.lib_match"),
    ),
    Mutation(
        "no-driver-library",
        both(
            lambda o: replace_output(
                o,
                "libraries",
                text="".join(line for line in o["libraries"].text.splitlines(True) if "libcuda.so" not in line),
            ),
            lambda o: no_cuda(
                o,
                "Found no NVIDIA driver on your system.",
                "libcuda.so.1: cannot open shared object file: No such file or directory",
            ),
        ),
        ("fw.torch.cuda",),
        "cuda.no-driver-library",
        also=("fw.torch.arch", "cuda.smoke", "fw.torch.matmul", "gpu.driver.lib_match", "cuda.libs"),
    ),
    Mutation(
        "memory-is-taken",
        lambda o: work(o, "torch-work", 4, alloc="failed: CUDA out of memory. Tried to allocate 2.00 GiB"),
        (),
        "cuda.out-of-memory",
        also=("fw.torch.matmul",),
    ),
    Mutation(
        "open-modules-on-pascal",
        lambda o: change(
            o, "driver-version", "NVIDIA UNIX x86_64 Kernel Module", "NVIDIA UNIX Open Kernel Module for x86_64"
        ),
        ("gpu.driver.flavour",),
        "driver.open-unsupported",
        machine="old_p100",
    ),
    Mutation(
        "nccl-crashes",
        lambda o: kernel_line(
            o, "python3[4242]: segfault at 18 ip 00007f1c sp 00007ffd error 4 in libnccl.so.2.18.1[7f1c38000000+9e0]"
        ),
        (),
        "nccl.segfault",
    ),
    Mutation(
        "interface-that-is-not-there",
        lambda o: variables(o, NCCL_SOCKET_IFNAME="ens9"),
        (),
        "nccl.wrong-interface",
    ),
    Mutation("peer-access-switched-off", lambda o: variables(o, NCCL_P2P_DISABLE="1"), (), "nccl.no-p2p"),
    Mutation(
        "no-room-for-the-memory-regions",
        both(
            lambda o: replace_output(o, "nvidia-smi-xml", text=drop_gpu(o["nvidia-smi-xml"].text, 5)),
            lambda o: kernel_line(o, "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:"),
            lambda o: kernel_line(o, "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:ab:00.0)"),
        ),
        ("gpu.count",),
        "pci.bar-space",
        also=("gpu.lost", "nvlink.active", "fw.torch.cuda"),
    ),
    Mutation(
        "gpu-does-not-wake",
        both(
            lambda o: replace_output(o, "nvidia-smi-xml", text=drop_gpu(o["nvidia-smi-xml"].text, 5)),
            lambda o: kernel_line(
                o, "nvidia 0000:ab:00.0: Unable to change power state from D3cold to D0, device inaccessible"
            ),
        ),
        ("gpu.count",),
        "pci.d3cold",
        also=("gpu.lost", "nvlink.active", "fw.torch.cuda"),
    ),
    Mutation(
        "card-lacks-power",
        lambda o: kernel_line(
            o, "mlx5_core 0000:1a:00.0: mlx5_pcie_event:301: Detected insufficient power on the PCIe slot (27W)."
        ),
        (),
        "rdma.nic-power",
    ),
    Mutation("row-remapped", xid(63, "Row Remapper: New row marked for remapping"), (), note="xid.63"),
    Mutation("many-single-bit-errors", xid(92, "High single-bit ECC error rate"), (), "xid.92"),
    Mutation("unrecoverable", xid(140, "Unrecovered ECC Error"), ("gpu.xid",), "xid.unrecoverable"),
    Mutation("unknown-xid", xid(32, "pid=1, Channel ID 00000008 intr0 00040000"), (), "xid.other", also=("gpu.xid",)),
    Mutation("clean-up-only", xid(45, "pid=4711, name=python, Ch 00000008"), (), note="xid.45", also=("gpu.xid",)),
]


def judge(outputs, expected):
    """Verify and diagnose one machine at the deepest level."""
    host = machines.snapshot(outputs)
    checks = choose_checks(MATRIX, "deep")
    verdict = verify_hosts({host.target: host}, {host.target: expected}, MATRIX, checks)
    return verdict, diagnose(Case(MATRIX, host))


@pytest.mark.parametrize("name", sorted(machines.MACHINES))
def test_healthy_machine_passes_and_has_no_cause(name: str) -> None:
    verdict, report = judge(machines.MACHINES[name](), machines.EXPECTED[name])
    assert [(row.check, row.outcome.status, row.outcome.seen) for row in verdict.failures] == []
    assert [(finding.diagnosis.id, finding.sign.seen) for finding in report.causes] == []
    assert report.broken == {}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_fault_is_found_and_nothing_else_is_blamed(mutation: Mutation) -> None:
    outputs = mutation.mutate(machines.MACHINES[mutation.machine]())
    verdict, report = judge(outputs, mutation.expected(machines.EXPECTED[mutation.machine]))
    failed = {row.check for row in verdict.results if row.outcome.status == "fail"}
    assert set(mutation.checks) <= failed
    blamed = {row.check for row in verdict.failures if row.severity == "critical"}
    assert blamed <= {*mutation.checks, *mutation.also}
    assert report.broken == {}
    causes = [finding.diagnosis.id for finding in report.causes]
    if mutation.cause:
        assert causes[:1] == [mutation.cause]
    if mutation.note:
        assert mutation.note in [finding.diagnosis.id for finding in report.notes]
        assert causes == []
    if mutation.explained:
        assert set(mutation.explained) <= {below.diagnosis.id for below in report.causes[0].consequences}
    others = [finding.diagnosis.id for finding in report.causes[1:] if finding.diagnosis.severity == "critical"]
    assert others == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_verify_and_doctor_agree_on_a_fault(mutation: Mutation) -> None:
    assert contradictions(mutation.mutate(machines.MACHINES[mutation.machine]())) == []


COMPARED = [
    Mutation(
        "mtu-of-another-size",
        lambda o: change(o, "interfaces", "eth0 mtu 9000", "eth0 mtu 1500"),
        ("net.mtu",),
        "net.mtu",
    ),
    Mutation("another-firmware-of-the-board", field(2, "vbios_version", "96.00.11.00.01"), ("gpu.vbios",)),
    Mutation(
        "slow-pair-of-hosts", lambda o: payload(o, "nccl-pair", figures={"busbw_gb_s": 37.5}), ("perf.nccl.pair",)
    ),
    Mutation(
        "pair-of-hosts-cannot-sum",
        lambda o: payload(o, "nccl-pair", together={"allreduce": "failed: 3 of 9 sums are wrong"}),
        ("perf.nccl.pair",),
        "gpu.failed-test",
    ),
    Mutation(
        "another-nccl-than-the-others",
        lambda o: payload(o, "torch", nccl="2.20.5"),
        ("cuda.nccl",),
        "nccl.version-skew",
    ),
]
"""Faults of one of three hosts, which only show when they are compared."""


@pytest.mark.parametrize("mutation", COMPARED, ids=lambda mutation: mutation.name)
def test_fault_of_one_host_shows_beside_the_others(mutation: Mutation) -> None:
    sound = machines.MACHINES[mutation.machine]()
    hosts = {name: machines.snapshot(sound, name) for name in ("gpu001", "gpu002")}
    hosts["gpu003"] = machines.snapshot(mutation.mutate(sound), "gpu003")
    expected = dict.fromkeys(hosts, machines.EXPECTED[mutation.machine])
    verdict = verify_hosts(hosts, expected, MATRIX, choose_checks(MATRIX, "deep"))
    failed = {(row.target, row.check) for row in verdict.results if row.outcome.status == "fail"}
    assert failed == {("gpu003", check) for check in mutation.checks}
    report = diagnose(Case(MATRIX, hosts["gpu003"], others=[hosts["gpu001"], hosts["gpu002"]]))
    causes = [finding.diagnosis.id for finding in report.causes]
    assert causes == ([mutation.cause] if mutation.cause else [])


def test_every_critical_check_has_a_fault() -> None:
    broken = {check for mutation in (*MUTATIONS, *COMPARED) for check in mutation.checks}
    # What no snapshot holds: the target that does not answer has none.
    assert {row.id for row in MATRIX.checks.values() if row.severity == "critical"} - broken <= {"host.reachable"}


def test_every_rule_of_weight_has_a_fault() -> None:
    named = {
        name for mutation in (*MUTATIONS, *COMPARED) for name in (mutation.cause, mutation.note, *mutation.explained)
    }
    # A row with patterns is told by its message alone, and has an example in the facts for that.
    weighty = {row.id for row in MATRIX.diagnoses.values() if row.severity in ("critical", "high") and not row.patterns}
    assert weighty - named <= set(ONLY_TEXT)


ONLY_TEXT = ("nccl.watchdog", "rdma.roce", "container.host-driver")
"""Rules that know their fault by what a job or an engine said, and by no state of the machine."""


def test_there_are_enough_faults() -> None:
    assert len(MUTATIONS) >= 120
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
