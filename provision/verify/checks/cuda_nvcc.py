"""The CUDA compiler is the planned one."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import ABSENT
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped
from provision.versions import is_prefix_of

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare releases where a compiler is planned, or is there without a word about it."""
    del matrix
    if expected.cuda is None:
        return skipped("no CUDA is planned")
    if expected.has_toolkit is False:
        return skipped("no compiler is planned, only what programs need to run")
    if host.output("nvcc").status == ABSENT:
        if expected.has_toolkit:
            return failed("there is no `nvcc`", f"CUDA {expected.cuda}")
        return skipped("there is no `nvcc`, and none is planned")
    nvcc = host.nvcc
    found = nvcc.version or nvcc.release
    if is_prefix_of(expected.cuda, found) or is_prefix_of(nvcc.release, expected.cuda):
        return passed(f"`nvcc` is {found}")
    return failed(f"`nvcc` is {found}", f"CUDA {expected.cuda}")
