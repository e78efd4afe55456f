"""The program holds no machine code for this GPU's architecture."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.stack import builds_for_driver, builds_for_gpu, driver_of, minimum_driver, torch_of
from provision.doctor.state import explain_faults
from provision.errors import UnknownError, UsageError
from provision.matrix.query import find_gpus, runs_on
from provision.versions import minor_of, parse

SYMPTOMS = (
    r"with CUDA capability sm_([0-9]{2,3})[a-z]? is not compatible with the current PyTorch installation",
    r"which is of cuda capability ([0-9]{1,2}\.[0-9])",
    r"no kernel image is available for execution on the device",
    r"cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU",
    r"current PyTorch install supports CUDA capabilities((?: sm_[0-9]{2,3}[a-z]?){1,40})",
    r"no kernel image is available\b",
    r"\binvalid device function\b|cudaErrorInvalidDeviceFunction",
    r"device kernel image is invalid|cudaErrorInvalidKernelImage|CUDA_ERROR_INVALID_(?:PTX|IMAGE|"
    r"SOURCE)\b",
    r"FATAL: kernel .{1,120} is for sm[0-9]{2,3}.{0,40}but was built for sm",
    r"not built with CUDA kernel binaries compatible with compute capability",
    r"nvrtc: error: invalid value for --gpu-architecture",
    r"ggml-cuda\.cu was compiled for: ?[0-9]{3}",
    r"This kernel only supports sm_?[0-9]{2,3}",
    r"was (?:not )?compiled (?:for|with) .{0,60}but (?:this|your|the) GPU (?:is|has) (?:sm_|compute "
    r"capability)",
    r"CUDA error: named symbol not found|cudaErrorSymbolNotFound",
    r"\b(?:CUDA|cu[A-Z]\w{3,30}|cuda[A-Z]\w{3,30})\W{0,3} ?(?:runtime |driver |initiali[sz]ation )?(?:error|"
    r"failure|returned|failed)(?: with error)?(?: code)?\W{1,4}(?:98|200|209)\b(?! ?(?:[KMG]i?B|%|/))",
    r"no device code compatible with CUDA arch|not compiled with any CUDA arch|"
    r"compiled without support for the current GPU architecture|"
    r"cublas runtime error : the GPU program failed to execute",
    r"PTX JIT compilation failed|cudaErrorInvalidPtx|Mismatched GPU Architecture|(?:compiled|"
    r"built) for .{0,60}(?:sm_?|compute )[0-9]{2}.{0,60}but your (?:current )?(?:GPU|device)",
    r"No compiled \w{0,20}(?:cutlass|nvfp4|scaled_mm|fp4|fp8)\w{0,20}",
    r"CUDA binary kernel for this graphics card compute capability|This file was compiled: -acc=gpu",
    r"Kokkos::Cuda::initialize ERROR: running kernels compiled for|Current region was compiled for: NVIDIA",
)

_TOLD = re.compile(r"compute capability ([0-9]{1,2}\.[0-9])")
_GENERIC = (
    r"CUDNN_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR|INTERNAL_ERROR|SUCCESS|ARCH_MISMATCH)",
    r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|cublas runtime error",
)
"""What cuBLAS and cuDNN say where they hold no code for the GPU, and of other failures."""
_NAMED = (
    r"\b((?:RTX|GTX) ?(?:A[0-9]{4}|[0-9]{3,4}) ?(?:Ti)?(?: SUPER)?)\b",
    r"\b(?:Tesla |NVIDIA )?((?:V100|T4|P100|P40|A100|A10|A30|A40|L4|L40S?|H100|H200|B200))\b",
)
_TARGETS = r"current PyTorch install supports CUDA capabilities((?: (?:sm|compute)_[0-9]{2,3}[a-z]?){1,40})"


def examine(case: Case) -> Sign | None:
    """Compare the GPU's compute capability with the targets the framework was compiled for."""
    faults = case.faults("fw.torch.arch/capability")
    if faults:
        text = _TOLD.search(faults[0].said)
        return explain_faults(
            case,
            faults,
            expected=f"a build with code for {text[1] if text else 'this GPU'}",
            quote=case.find(*SYMPTOMS),
            fix=_ways_out(case, capability) if text and (capability := _capability(text[1])) else (),
        )
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return _told_by_releases(case)
    number = case.find(*SYMPTOMS[:2])
    capability = _capability(number.match[1]) if number else _capability_of_name(case)
    listed = case.find(_TARGETS)
    seen = (f"that build holds code for {', '.join(listed.match[1].split())}",) if listed else ()
    return hint(
        quote,
        confidence="high" if number and listed else "medium",
        seen=seen,
        expected=f"a build with code for compute capability {capability[0]}.{capability[1]}"
        if capability
        else "a build with code for this GPU",
        fix=_ways_out(case, capability) if capability else (),
        unseen=() if capability else ("which GPU this is: `nvidia-smi --query-gpu=name,compute_cap --format=csv`",),
    )


def _told_by_releases(case: Case) -> Sign | None:
    """Decide on a message of many causes where the text names a GPU and a PyTorch that has no code for it."""
    quote, named, torch = case.find(*_GENERIC), case.find(*_NAMED), torch_of(case)
    if quote is None or named is None or torch.version is None or torch.cuda is None:
        return None
    build = next(
        (row for row in case.matrix.torch_builds if (row.torch, row.cuda) == (torch.version, torch.cuda)), None
    )
    try:
        capability = _capability(find_gpus(case.matrix, named.match[1])[0].compute_capability)
    except (UnknownError, UsageError):
        return None
    if build is None or not build.sm or capability is None or runs_on(capability, build.sm, build.ptx):
        return None
    return hint(
        quote,
        seen=(f"torch {torch.version} built for CUDA {torch.cuda} holds no code for {named.match[1]}",),
        expected=f"a build with code for compute capability {capability[0]}.{capability[1]}",
        fix=_ways_out(case, capability),
        message_kind="root",
    )


def _capability(text: str) -> tuple[int, int] | None:
    digits = re.sub(r"[^0-9]", "", text)
    return (int(digits[:-1]), int(digits[-1])) if len(digits) >= 2 else None


def _capability_of_name(case: Case) -> tuple[int, int] | None:
    smi = case.look(lambda host: host.smi)
    for gpu in smi.gpus if smi else ():
        try:
            return _capability(find_gpus(case.matrix, gpu.name or "")[0].compute_capability)
        except (UnknownError, UsageError):
            continue
    return None


def _ways_out(case: Case, capability: tuple[int, int]) -> tuple[str, ...]:
    """Name the newest build that holds code for it, of the lowest CUDA, so that the driver need not change too."""
    driver = driver_of(case)
    builds = builds_for_gpu(case.matrix, capability)
    name = f"compute capability {capability[0]}.{capability[1]}"
    if not builds:
        return (f"No build of torch in the facts holds code for {name}; compile it for this GPU, or use another GPU.",)
    able = builds_for_driver(case.matrix, driver) if driver else ()
    fitting = [build for build in builds if build in able]
    newest = (fitting or builds)[0]
    best = min((build for build in fitting or builds if build.torch == newest.torch), key=lambda row: parse(row.cuda))
    needed = minimum_driver(case.matrix, best.cuda)
    short = minor_of(best.torch)
    flag = f" --driver {driver}" if fitting else ""
    return (
        *((f"Upgrade the driver to {needed} or newer first.",) if driver and needed and not fitting else ()),
        f"Install torch {best.torch} built for CUDA {best.cuda} ({best.variant}): it holds code for {name}.",
        f"`provision resolve --torch {short} --gpu sm_{capability[0]}{capability[1]}{flag}` names the whole stack.",
    )
