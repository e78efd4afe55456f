"""MIG is as planned, now and after the next reset."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.modes import judge_mode
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare current, pending and planned; without a plan, current and pending."""
    del matrix
    return judge_mode(host.smi.gpus, "MIG", expected.is_mig, after="reset")
