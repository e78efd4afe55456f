"""No GPU has used up its spare memory rows."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import is_field_told, judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count rows remapped for uncorrectable errors."""
    del expected
    maximum = matrix.limit("gpu.remap.count.maximum")
    return judge_field(
        host.smi.gpus,
        "remapped_uncorrectable",
        lambda count: f"has {count} rows remapped for uncorrectable errors" if count >= maximum else None,
        fine="rows to spare on every GPU",
        expected=f"fewer than {maximum:.0f}",
        is_told=is_field_told(host.smi, matrix, "remapped-rows"),
    )
