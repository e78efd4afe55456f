"""The GPUs of the host add numbers up over NCCL."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.verify.work import count_gpus, has_mig

__all__ = ["check"]

_TEST = "allreduce"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge PyTorch's all-reduce over all local GPUs."""
    del matrix
    work = host.torch_nccl
    if work.error:
        return failed(f"the all-reduce could not begin: {work.error}", "a correct sum")
    said = work.together.get(_TEST)
    if said == "ok":
        ranks = work.figures.get("ranks")
        count = None if has_mig(host) else count_gpus(host, expected)
        if ranks is None:
            return unknown("the sum is right, and the payload does not say how many GPUs took part")
        if count is not None and ranks < count:
            return failed(f"{ranks:g} of {count} GPUs took part in the all-reduce", f"all {count} GPUs")
        return passed(f"the sum is right on {ranks:g} GPUs", figures=work.figures)
    if said is None or said.startswith("skipped"):
        return unknown(said or "the payload did not try an all-reduce")
    return failed(f"the all-reduce {said}", "a correct sum")
