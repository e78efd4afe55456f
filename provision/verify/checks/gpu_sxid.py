"""No NVSwitch reported a fatal error since boot."""

from __future__ import annotations

from collections import Counter

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import read_events, require_whole_log
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Read the SXids of the kernel log; a line says itself whether it is fatal."""
    del expected, matrix
    events = read_events(host, "sxid")
    fatal = [event for event in events if event.is_fatal]
    unclear = [event for event in events if event.is_fatal is None]
    said = "; ".join(
        f"NVSwitch {pci or 'without an address'} SXid {code}{f', {count} times' if count > 1 else ''}"
        for (pci, code), count in Counter((event.pci, event.code) for event in fatal or unclear or events).items()
    )
    if fatal:
        return failed(
            f"fatal: {said}", "none", subjects=dict.fromkeys(f"NVSwitch {event.pci or '?'}" for event in fatal)
        )
    if unclear:
        return unknown(f"whether they are fatal is not said: {said}")
    require_whole_log(host)
    return passed(f"none fatal: {said}" if events else "no SXid since boot")
