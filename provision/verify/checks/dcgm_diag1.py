"""DCGM's diagnostics of level 1 pass: the software around them."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.diagnostics import judge_diagnosis
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge the document of ``dcgmi diag -r 1``; an unknown one is never a pass."""
    del matrix
    return judge_diagnosis(host, expected, level=1)
