"""The compute mode is the planned one, else the default."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare without regard to case and to how the words are joined."""
    del matrix
    wanted = expected.compute_mode or "Default"
    return judge_field(
        host.smi.gpus,
        "compute_mode",
        lambda mode: None if _plain(mode) == _plain(wanted) else f"is in mode {mode}",
        fine=f"compute mode {wanted}",
        expected=wanted,
    )


def _plain(mode: str) -> str:
    return mode.lower().replace("_", "").replace(" ", "").replace("-", "")
