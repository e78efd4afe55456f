"""A memory row of the GPU was replaced by a spare one, or a page set aside."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 63\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 63 and say whether the replacement still waits for a reset."""
    waiting = case.faults("gpu.remap.pending/remap_pending", "gpu.retired/pending")
    return explain_xids(
        case,
        63,
        expected="no Xid 63 since the last reset of the GPU",
        seen=tuple(f"{fault.said} until a reset" for fault in waiting),
        unseen=("whether it still waits for a reset: `nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT`",),
    )
