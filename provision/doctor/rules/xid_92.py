"""Errors that ECC corrects come unusually often."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 92\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 92."""
    return explain_xids(
        case,
        92,
        expected="no Xid 92",
        unseen=("how fast the counters rise: `nvidia-smi -q -d ECC`",),
    )
