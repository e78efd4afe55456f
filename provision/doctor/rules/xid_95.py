"""A memory error could not be confined: nothing on this GPU can be trusted until it is reset."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 95\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 95."""
    return explain_xids(case, 95, expected="no Xid 95")
