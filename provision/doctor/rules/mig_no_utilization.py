"""With MIG on, the driver gives no utilisation of the whole GPU."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"DCGM_FI_DEV_GPU_UTIL\b.{0,120}\b(?:N/A|missing|absent|not (?:found|present|available|supported)|is 0|always 0)",
    r"utilization\.gpu.{0,60}\[?(?:N/A|Not Supported)",
    r"\bMIG\b.{0,80}\b(?:GPU[- ]?Util|utili[sz]ation)\b.{0,60}\b(?:N/A|0 ?%|missing|not)",
)


def examine(case: Case) -> Sign | None:
    """Look whether the GPUs without a figure are those in MIG mode; that they are is no fault."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    smi = case.look(lambda host: host.smi)
    sliced = [gpu for gpu in smi.gpus if gpu.mig_current and gpu.utilization_percent is None] if smi else []
    expected = "DCGM_FI_PROF_GR_ENGINE_ACTIVE, which counts for each instance"
    if sliced:
        return Sign(
            confidence="high",
            seen=(f"{len(sliced)} GPUs are in MIG mode and have no utilisation", *quoted(quote)),
            expected=expected,
            subjects=tuple(f"GPU {gpu.minor} ({gpu.pci})" for gpu in sliced),
        )
    if smi:
        return None
    return hint(
        quote, expected=expected, unseen=("whether MIG is on: `nvidia-smi --query-gpu=mig.mode.current --format=csv`",)
    )
