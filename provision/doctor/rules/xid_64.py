"""A faulty memory row of the GPU could not be replaced."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 64\b", r"Remapping Failure Occurred\s{0,20}:\s{0,4}Yes")

_EXPECTED = "no failure of row remapping"


def examine(case: Case) -> Sign | None:
    """Look for Xid 64, for the flag that the GPU keeps of it, and for GPUs that have nothing left to remap with."""
    failed = case.faults("gpu.remap.failure")
    found = explain_xids(case, 64, expected=_EXPECTED, seen=(fault.said for fault in failed))
    if found is not None and (not failed or found.confidence == "high"):
        return found
    if failed:
        return explain_faults(case, failed, expected=_EXPECTED, seen=found.seen if found is not None else ())
    if spent := case.faults("gpu.remap.count", "gpu.retired/pages"):
        return explain_faults(case, spent, expected="spare rows, or free places in the list of retired pages")
    return hint(case.find(SYMPTOMS[1]), expected=_EXPECTED, unseen=("which GPU it is",))
