"""No GPU has exceeded its threshold of SRAM errors."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import is_field_told, judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Read the flag the GPU sets itself."""
    del expected
    return judge_field(
        host.smi.gpus,
        "sram_threshold_exceeded",
        lambda is_exceeded: "has exceeded its SRAM error threshold" if is_exceeded else None,
        fine="no SRAM error threshold exceeded",
        expected="No",
        is_told=is_field_told(host.smi, matrix, "sram-threshold"),
    )
