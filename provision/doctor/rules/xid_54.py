"""The GPU board's own power plug is not connected."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 54\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 54."""
    return explain_xids(case, 54, expected="auxiliary power connected")
