"""No package asks for a reboot."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]

_SHOWN = 5


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Read the system's own mark."""
    del expected, matrix
    asking = host.reboot_required
    if asking is None:
        return passed("no reboot is asked for")
    named = ", ".join(asking[:_SHOWN]) + (f" and {len(asking) - _SHOWN} more" if len(asking) > _SHOWN else "")
    return failed(f"a reboot is asked for{f' by {named}' if named else ''}", "none", subjects=asking)
