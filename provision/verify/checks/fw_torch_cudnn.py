"""cuDNN computes a convolution on every GPU."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome
from provision.verify.work import judge_work

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge the convolution that PyTorch hands to cuDNN."""
    del matrix
    return judge_work(
        host, host.torch_work, expected, ("conv-cudnn",), fine="convolved", should="a convolution on every GPU"
    )
