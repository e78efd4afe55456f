"""Errors that ECC corrects come unusually often."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_gpus
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids
from provision.records import replace

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 92\b",)

_ALL = "gpu.ecc.corrected.maximum"
_SRAM = "gpu.ecc.corrected.sram.maximum"
_UNSEEN = ("how fast the counters rise: `nvidia-smi -q -d ECC`, an hour apart",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 92, and for GPUs that have corrected more errors in their life than others accept."""
    found = explain_xids(case, 92, expected="no Xid 92", unseen=_UNSEEN)
    counted = _counts(case)
    if found is not None:
        return replace(found, seen=(*found.seen, *counted.values()))
    if not counted:
        return None
    return Sign(
        confidence="medium",
        seen=tuple(counted.values()),
        expected=f"fewer corrected errors than {case.matrix.limit(_ALL):g}, {case.matrix.limit(_SRAM):g} of SRAM",
        subjects=tuple(counted),
        unseen=_UNSEEN,
    )


def _counts(case: Case) -> dict[str, str]:
    """Return GPU → how many errors it corrected, for GPUs above a limit."""
    found = {}
    for gpu in smi_gpus(case):
        every, sram = gpu.ecc_aggregate_correctable, gpu.ecc_aggregate_sram_correctable
        if sram is not None and sram >= case.matrix.limit(_SRAM):
            found[name_gpu(gpu)] = f"{name_gpu(gpu)} has corrected {sram} errors of SRAM"
        elif every is not None and every >= case.matrix.limit(_ALL):
            found[name_gpu(gpu)] = f"{name_gpu(gpu)} has corrected {every} memory errors"
    return found
