"""NCCL is the planned one, wherever a program would get it."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.libraries import judge_library
from provision.verify.outcome import Outcome, skipped

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the copies of the loader, of the wheels and of PyTorch with the plan."""
    del matrix
    planned = expected.nccl
    if planned is None:
        return skipped("no NCCL is planned")
    return judge_library(
        host,
        planned,
        label="NCCL",
        soname="libnccl.so",
        wheel="nvidia-nccl",
        said="nccl",
        of_torch=expected.build_of("torch").nccl,
    )
