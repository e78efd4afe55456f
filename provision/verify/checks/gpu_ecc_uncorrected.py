"""No uncorrectable memory error since the driver loaded."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count volatile uncorrectable errors of all kinds."""
    del expected
    maximum = matrix.limit("gpu.ecc.uncorrected.maximum")
    return judge_field(
        host.smi.gpus,
        "ecc_volatile_uncorrectable",
        lambda count: f"has {count} uncorrectable errors" if count > maximum else None,
        fine="no uncorrectable error since the driver loaded",
        expected=f"{maximum:.0f}",
    )
