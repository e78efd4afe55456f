"""The GPU has no memory of its own, so figures about it are absent; this is no fault."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.errors import UnknownError, UsageError
from provision.matrix.query import find_gpus

SYMPTOMS = (
    r"W / {1,6}(?:N/A|[0-9]{1,5}W) {1,6}\| {1,6}Not Supported {1,24}\|",
    r"\bmemory\.(?:total|used|free)\b.{0,60}\[?(?:N/A|Not Supported)",
    r"\bGB10\b.{0,160}(?:N/A|Not Supported|not supported)",
    r"\b(?:Orin|Thor)\b.{0,160}(?:Memory|memory).{0,40}(?:N/A|Not Supported)",
    r"nvmlDeviceGetMemoryInfo.{0,60}(?:NVML_ERROR_NOT_SUPPORTED|Not Supported)",
)


def examine(case: Case) -> Sign | None:
    """Look whether the GPU that shows no memory is one that shares the host's."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    smi = case.look(lambda host: host.smi)
    expected = "no figure: the host's memory is the GPU's, and `free -h` shows it"
    bare = [gpu for gpu in smi.gpus if gpu.memory_total_mib is None] if smi else []
    shared = [gpu for gpu in bare if gpu.name and _shares_memory(case, gpu.name)]
    if shared:
        return Sign(
            confidence="high", seen=(f"{shared[0].name} shares the host's memory", *quoted(quote)), expected=expected
        )
    if smi:
        return None
    return hint(quote, expected=expected, unseen=("which GPU this is: `nvidia-smi -L`",))


def _shares_memory(case: Case, name: str) -> bool:
    try:
        return any("unified" in (gpu.memory_type or "") for gpu in find_gpus(case.matrix, name))
    except (UnknownError, UsageError):
        return False
