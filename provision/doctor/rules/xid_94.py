"""A memory error hit one program and was confined to it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 94\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 94."""
    return explain_xids(
        case,
        94,
        expected="no Xid 94",
        unseen=("whether a row remap waits for a reset: `nvidia-smi -q -d ROW_REMAPPER`",),
    )
