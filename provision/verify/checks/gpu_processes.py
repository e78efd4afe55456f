"""No program computes on the GPUs."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import judge_field
from provision.verify.outcome import Outcome, skipped

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """List compute programs, unless the plan says that the GPUs are in use."""
    del matrix
    if expected.is_in_use:
        return skipped("the plan says that programs run")
    return judge_field(
        host.smi.gpus,
        "processes",
        lambda processes: _say([f"{process.name} (pid {process.pid})" for process in processes if "C" in process.kind]),
        fine="no program computes",
        expected="none",
    )


def _say(programs: list[str]) -> str | None:
    return f"runs {', '.join(programs)}" if programs else None
