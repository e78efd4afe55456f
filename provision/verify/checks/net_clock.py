"""The clock is kept by a time server."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask whether it is synchronised, and how far off it is where the tool tells."""
    del expected
    clock = host.clock
    most = matrix.limit("net.clock-offset")
    if clock.offset_seconds is not None and abs(clock.offset_seconds) >= most:
        return failed(f"the clock is {clock.offset_seconds:.3g} s off", f"less than {most:g} s")
    if clock.is_synchronised is None:
        return unknown("no tool tells whether the clock is synchronised")
    if not clock.is_synchronised:
        return failed("the clock is not synchronised", f"synchronised, less than {most:g} s off")
    off = f", {abs(clock.offset_seconds):.2g} s off" if clock.offset_seconds is not None else ""
    return passed(f"the clock is synchronised{off}")
