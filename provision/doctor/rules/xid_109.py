"""A GPU did not switch from one program to another in time."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 109\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 109."""
    return explain_xids(case, 109, expected="no Xid 109", unseen=("whether it follows one program or one GPU",))
