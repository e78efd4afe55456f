"""A kernel started through the driver gives the right answer on every GPU."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome
from provision.verify.work import judge_work

__all__ = ["check"]

_DRIVER_TESTS = ("vector-add",)
_TORCH_TESTS = ("matmul-fp32",)


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge the kernel through libcuda; where that could not be asked, PyTorch's simplest work."""
    del matrix
    fine, should = "computed correctly", "the right sum on every GPU"
    try:
        work = host.cuda_work
    except Unreadable as first:
        try:
            work = host.torch_work
        except Unreadable:
            raise first from None
        return judge_work(host, work, expected, _TORCH_TESTS, fine=fine, should=should)
    return judge_work(host, work, expected, _DRIVER_TESTS, fine=fine, should=should)
