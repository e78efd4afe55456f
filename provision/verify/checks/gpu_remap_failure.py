"""No GPU failed to put spare memory rows into use."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import is_field_told, judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Read the flag the GPU sets when a bank has no row to spare."""
    del expected
    return judge_field(
        host.smi.gpus,
        "remap_failure",
        lambda has_failed: "failed to remap a memory row" if has_failed else None,
        fine="no row remap failed",
        expected="No",
        is_told=is_field_told(host.smi, matrix, "remapped-rows"),
    )
