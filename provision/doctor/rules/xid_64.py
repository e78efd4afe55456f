"""A faulty memory row of the GPU could not be replaced."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_gpus, smi_where
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 64\b", r"Remapping Failure Occurred\s{0,20}:\s{0,4}Yes")

_EXPECTED = "no failure of row remapping"
_REMAPS = "gpu.remap.count.maximum"
_PAGES = "gpu.retired.maximum"


def examine(case: Case) -> Sign | None:
    """Look for Xid 64, for the flag that the GPU keeps of it, and for GPUs that have nothing left to remap with."""
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
    if found is None and (spent := _spent(case)):
        return Sign(
            confidence="medium",
            seen=tuple(spent.values()),
            expected="spare rows, or free places in the list of retired pages",
            subjects=tuple(spent),
        )
    quote = case.find(SYMPTOMS[1])
    if quote is None:
        return None
    return Sign(confidence="medium", seen=(f'"{quote.line}"',), expected=_EXPECTED, unseen=("which GPU it is",))


def _spent(case: Case) -> dict[str, str]:
    """Return GPU → what is used up, for GPUs that cannot replace a further row or page."""
    rows, pages = case.matrix.limit(_REMAPS), case.matrix.limit(_PAGES)
    found = {}
    for gpu in smi_gpus(case):
        retired = (gpu.retired_single or 0) + (gpu.retired_double or 0)
        if gpu.remapped_uncorrectable is not None and gpu.remapped_uncorrectable >= rows:
            found[name_gpu(gpu)] = (
                f"{name_gpu(gpu)} has remapped {gpu.remapped_uncorrectable} rows, and has {rows:g} to spare"
            )
        elif retired >= pages:
            found[name_gpu(gpu)] = f"{name_gpu(gpu)} has retired {retired} pages, and its list ends at {pages:g}"
    return found
