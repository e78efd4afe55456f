"""A controller inside the GPU halted."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: (?:61|62|169)\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xids of halted controllers."""
    return explain_xids(case, 61, 62, 169, expected="no halted controller")
