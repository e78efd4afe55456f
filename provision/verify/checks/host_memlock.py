"""Programs may lock enough memory for RDMA."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_KIB_PER_GIB = 1024 * 1024


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare ``ulimit -l`` with the limit of the facts."""
    del expected
    limits = host.limits
    if "memlock_kib" not in limits:
        return unknown("`ulimit -l` told nothing")
    locked = limits["memlock_kib"]
    minimum = matrix.limit("host.memlock.minimum")
    if locked is None:
        return passed("unlimited")
    if locked >= minimum * _KIB_PER_GIB:
        return passed(f"{locked / _KIB_PER_GIB:.0f} GiB")
    return failed(f"{locked} KiB may be locked", f"unlimited, or at least {minimum:.0f} GiB")
