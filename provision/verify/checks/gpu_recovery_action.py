"""No GPU asks for a reset or a reboot."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import is_field_told, judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Read what the driver itself asks for, from the branch on that says it."""
    del expected
    return judge_field(
        host.smi.gpus,
        "recovery_action",
        lambda action: None if action == "None" else f"asks for: {action}",
        fine="no GPU asks for a recovery action",
        expected="None",
        is_told=is_field_told(host.smi, matrix, "recovery-action"),
    )
