"""Products of matrices come out right on every GPU."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome
from provision.verify.work import judge_work

__all__ = ["check"]

_TESTS = ("matmul-fp32", "matmul-tf32", "matmul-fp16", "matmul-bf16")


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge the products in each type that the GPU has, compared with the processor's."""
    del matrix
    return judge_work(
        host,
        host.torch_work,
        expected,
        _TESTS,
        fine="multiplied correctly",
        should="the processor's product on every GPU",
        needs_all=True,
    )
