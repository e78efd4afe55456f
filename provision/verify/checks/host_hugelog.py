"""No program met a driver of another version since boot."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import count_words, read_events
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count what the kernel says of programs whose libraries are of another version than its module."""
    del expected, matrix
    events = read_events(host, "api-mismatch")
    if not events:
        return passed("no version mismatch in the kernel log since boot")
    return failed(
        f"{count_words(len(events), 'version mismatch', 'version mismatches')} in the kernel log since boot, the last: "
        f"{events[-1].text}",
        "none",
    )
