"""A GPU's memory is full: of this program, of another, or of something nobody sees any more."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"CUDA out of memory",
    r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
    r"CUDA error: out of memory",
    r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)",
    r"cudaMalloc failed: out of memory|cuMemAlloc.{0,20} failed: out of memory|CUDA error 2\b.{0,120}"
    r"out of memory",
    r"OOM when allocating tensor",
    r"out_of_memory: (?:CUDA|RMM)|maximum pool size exceeded",
    r"CUDNN_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_(?:ALLOC_FAILED|"
    r"INSUFFICIENT_RESOURCES)",
    r"BFCArena.{0,120}Failed to allocate memory for requested buffer",
    r"Unable to find a valid cuDNN algorithm to run convolution",
    r"Cuda failure (?:[0-9]{1,2} )?'out of memory'",
    r"unable to allocate CUDA[0-9]{1,2} buffer",
    r"cuda runtime error \(2\)|CUFFT_ALLOC_FAILED|CURAND_STATUS_ALLOCATION_FAILED",
    r"Dst tensor is not (?:initialized|copied)|Make sure you have enough GPU RAM to fit",
    r"NVML_SUCCESS == r INTERNAL ASSERT FAILED|handles?_\S{0,8} INTERNAL ASSERT FAILED at .{0,80}driver_api\.cpp",
    r"Triton Error \[CUDA\]: out of memory|OutOfMemoryError: Allocation on device|"
    r"\[TRT\].{0,160}(?:OutOfMemory|\(out of memory\))",
    r"The memory capacity is unbalanced|No executable batch size found, reached zero",
    r"Failed to CUDA (?:host )?[cm]alloc [0-9]{1,15} bytes|CUDA failed with error out of memory",
    r"System is out of GPU memory|Out of GPU memory trying to allocate|Failed to cudaMalloc [0-9]{1,15} bytes|"
    r"Insufficient memory on accelerator",
    r"\btorch\.(?:cuda\.)?OutOfMemoryError\b",
    r"less than desired GPU memory utilization",
    r"not enough (?:free )?GPU memory to|GPU memory .{0,20}(?:exhausted|not enough to)",
)

_TOTAL = r"total capacity of ([0-9.]{1,8}) GiB of which ([0-9.]{1,8}) ([GM])iB is free"
_OWN = r"this process has ([0-9.]{1,8}) ([GM])iB memory in use"
_UNUSED = r"([0-9.]{1,8}) GiB is reserved by PyTorch but unallocated"


def examine(case: Case) -> Sign | None:
    """Tell apart memory that no process owns, memory of others, fragments, and a program that is simply too large."""
    quote = case.find(*SYMPTOMS)
    smi = case.look(lambda host: host.smi)
    expected = "memory of a GPU held by the processes that are listed on it"
    owners = case.look(lambda host: host.device_users) or ()
    for index, gpu in enumerate(smi.gpus if smi else ()):
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        if used is None or not total or gpu.processes or gpu.mig_current or used * 2 < total:
            continue
        seen = [f"{used} of {total} MiB are used and nvidia-smi lists no process"]
        if owners:
            seen.append(f"these hold the driver's nodes: {', '.join(owners[:4])}")
        return Sign(
            confidence="high" if quote else "medium",
            seen=(*seen, *quoted(quote)),
            expected=expected,
            subjects=(f"GPU {gpu.minor if gpu.minor is not None else index} ({gpu.pci})",),
            unseen=() if owners else ("which process holds the nodes: `fuser -v /dev/nvidia*`",),
        )
    unseen = () if smi else ("who uses the GPU: `nvidia-smi`",)
    fragments = case.find(_UNUSED)
    total_said, own = case.find(_TOTAL), case.find(_OWN)
    if total_said and own and _gib(own.match[1], own.match[2]) * 2 < float(total_said.match[1]):
        others = (
            f"the program holds {own.match[1]} {own.match[2]}iB of {total_said.match[1]} GiB: others hold the rest",
        )
        return hint(quote, seen=others, expected=expected, unseen=unseen)
    if total_said and fragments and float(fragments.match[1]) * 4 > float(total_said.match[1]):
        return hint(
            quote,
            seen=(f"{fragments.match[1]} GiB are reserved and unused, in pieces too small",),
            expected="memory in one piece",
            fix=("Let the allocator grow its blocks: `export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",),
        )
    return hint(quote, expected=expected, unseen=unseen)


def _gib(number: str, unit: str) -> float:
    return float(number) / (1024 if unit == "M" else 1)
