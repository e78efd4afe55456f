"""The GPUs are there, and a variable or the scheduler hides them from the program."""

from __future__ import annotations

from collections.abc import Mapping

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.probe.parse.nvidia_smi import Smi

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"no CUDA-capable device is detected",
    r"No CUDA GPUs are available",
    r"CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice",
    r"\bcu(?:Init|da\w{2,30}|DeviceGet\w{0,10})\b.{0,24}\b(?:returned|failed|error|code)\W{1,4}100\b",
    r"\b(?:CUDA )?error(?: code)?:? \(?100\b(?!.{0,40}(?:network|connect|http|unreachable))",
    r"\bCUDA_VISIBLE_DEVICES=(?:\"\"|''|-1|\"-1\"|NoDevFiles)?\s*$",
    r"The NVIDIA Driver was not detected\.\s{0,4}GPU functionality",
    r"init(?:iali[sz]ation)? failure: 100\b",
    r"RuntimeError: Failed to infer device type",
)

_HIDING = ("", "-1", "none", "nodevfiles", "void")


def examine(case: Case) -> Sign | None:
    """Look for a variable that names no GPU of this host."""
    quote = case.find(*SYMPTOMS)
    smi = case.look(lambda host: host.smi)
    environment = case.look(lambda host: host.environment)
    said = _what_hides(environment, smi) if environment is not None else None
    expected = "CUDA_VISIBLE_DEVICES unset, or naming GPUs of this host"
    if said is None and environment is not None and smi is not None and _begins_beyond(environment, len(smi.gpus)):
        # A number that no GPU has is a diagnosis of its own, and the reason of the same messages.
        return None
    if said:
        return Sign(confidence="high", seen=(said, *quoted(quote)), expected=expected)
    unseen = (
        () if environment is not None else ("what the program's own environment holds: `env | grep VISIBLE_DEVICES`",)
    )
    return hint(quote, expected=expected, unseen=unseen)


def _begins_beyond(environment: Mapping[str, str], count: int) -> bool:
    """Tell whether the first GPU that is named is beyond the last there is: then none of those behind it is shown."""
    first = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return first.isdecimal() and int(first) >= count > 0


def _what_hides(environment: Mapping[str, str], smi: Smi | None) -> str | None:
    hidden = environment.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip().lower() in _HIDING:
        return f"CUDA_VISIBLE_DEVICES is `{hidden}`, which shows no GPU"
    if hidden is not None and hidden.strip().startswith("-1,"):
        return f"CUDA_VISIBLE_DEVICES is `{hidden}`: nothing after -1 is shown"
    if hidden is not None and smi is not None and hidden.startswith("GPU-"):
        first = hidden.split(",")[0].strip()
        if not any(gpu.uuid and gpu.uuid.startswith(first) for gpu in smi.gpus):
            return f"CUDA_VISIBLE_DEVICES names {first}, which is none of this host's GPUs"
    if environment.get("NVIDIA_VISIBLE_DEVICES", "all").strip().lower() in ("void", "none", ""):
        return f"NVIDIA_VISIBLE_DEVICES is `{environment['NVIDIA_VISIBLE_DEVICES']}`, which gives the container no GPU"
    return None
