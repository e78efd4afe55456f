"""The driver lost its connection to a GPU."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 79\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 79."""
    return explain_xids(
        case,
        79,
        expected="no Xid 79",
        unseen=("power supply events (`ipmitool sel list`) and the temperatures before it",),
    )
