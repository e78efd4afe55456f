"""The GPU met an error that only a reset or a new board ends."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: (?:46|110|136|140|143|155|156|157|158|167)\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xids that ask for a reset whatever runs."""
    return explain_xids(
        case,
        46,
        110,
        136,
        140,
        143,
        155,
        156,
        157,
        158,
        167,
        expected="none of these Xids",
        unseen=("whether the GPU works after a reset",),
    )
