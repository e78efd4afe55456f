"""Errors that ECC corrects come unusually often."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.doctor.xid import explain_xids
from provision.records import replace

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 92\b",)

_UNSEEN = ("how fast the counters rise: `nvidia-smi -q -d ECC`, an hour apart",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 92, and for GPUs that have corrected more errors in their life than others accept."""
    found = explain_xids(case, 92, expected="no Xid 92", unseen=_UNSEEN)
    counted = case.faults("gpu.ecc.corrected")
    if found is not None:
        return replace(found, seen=(*found.seen, *(fault.said for fault in counted)))
    return explain_faults(case, counted, expected="few corrected errors", unseen=_UNSEEN)
