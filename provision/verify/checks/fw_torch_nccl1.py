"""The GPUs of the host add numbers up over NCCL."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_TEST = "allreduce"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge PyTorch's all-reduce over all local GPUs."""
    del expected, matrix
    work = host.torch_nccl
    if work.error:
        return failed(f"the all-reduce could not begin: {work.error}", "a correct sum")
    said = work.together.get(_TEST)
    if said == "ok":
        return passed("the sum is right on every GPU", figures=work.figures)
    if said is None or said.startswith("skipped"):
        return unknown(said or "the payload did not try an all-reduce")
    return failed(f"the all-reduce {said}", "a correct sum")
