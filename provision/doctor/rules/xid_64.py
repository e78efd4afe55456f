"""A faulty memory row of the GPU could not be replaced."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_where
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 64\b", r"Remapping Failure Occurred\s{0,20}:\s{0,4}Yes")

_EXPECTED = "no failure of row remapping"


def examine(case: Case) -> Sign | None:
    """Look for Xid 64 and for the flag that the GPU keeps of it."""
    failed = smi_where(case, lambda gpu: gpu.remap_failure is True)
    flags = tuple(f"{name_gpu(gpu)} keeps the flag of a failed row remap" for gpu in failed)
    found = explain_xids(case, 64, expected=_EXPECTED, seen=flags)
    if found is not None and (not failed or found.confidence == "high"):
        return found
    if failed:
        return Sign(
            confidence="high",
            seen=(*flags, *(found.seen if found is not None else ())),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in failed),
        )
    quote = case.find(SYMPTOMS[1])
    if quote is None:
        return None
    return Sign(confidence="medium", seen=(f'"{quote.line}"',), expected=_EXPECTED, unseen=("which GPU it is",))
