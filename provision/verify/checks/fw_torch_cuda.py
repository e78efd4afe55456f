"""PyTorch can use every GPU."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.frameworks import judge_devices
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask what it sees, and where it sees nothing, why: build, variable, driver, or its own words."""
    return judge_devices(host, host.torch, expected, matrix)
