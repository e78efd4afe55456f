"""The driver reported no fatal error since boot."""

from __future__ import annotations

from collections import Counter

from provision.matrix.load import Matrix
from provision.probe.parse.kernel_log import KernelEvent
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import name_address, read_events, require_whole_log
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_FATAL = "fatal"
_HARMLESS = ("application", "information")


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge each Xid of the kernel log by the catalogue, and each GPU that fell off the bus without one.

    Warnings and errors of programs are told and pass: what a warning is about shows in the state of the GPU, which
    other checks judge, and its line stays in the log after the repair. An Xid outside the catalogue is unknown.
    """
    del expected
    events = read_events(host, "xid", "fallen-off")
    bad = [event for event in events if _severity(event, matrix) == _FATAL]
    strange = [event for event in events if _severity(event, matrix) is None]
    if bad:
        known = next((row for event in bad if (row := matrix.xids.get(event.code or 0)) is not None), None)
        return failed(
            _say(host, matrix, bad),
            "no fatal Xid",
            subjects=dict.fromkeys(name_address(host, event.pci) for event in bad),
            remedy=(known.advice or "") if known is not None else "",
        )
    if strange:
        return unknown(f"the catalogue does not know: {_say(host, matrix, strange)}")
    require_whole_log(host)
    warnings = [event for event in events if _severity(event, matrix) not in _HARMLESS]
    if warnings:
        return passed(f"none fatal, to be watched: {_say(host, matrix, warnings)}")
    if events:
        return passed(f"only errors of programs: {_say(host, matrix, list(events))}")
    return passed("no Xid since boot")


def _severity(event: KernelEvent, matrix: Matrix) -> str | None:
    """Return the catalogue's word, or ``None`` where it has none."""
    if event.code is None:
        return "fatal" if event.kind == "fallen-off" else None
    known = matrix.xids.get(event.code)
    return known.severity if known is not None else None


def _say(host: Snapshot, matrix: Matrix, events: list[KernelEvent]) -> str:
    counts = Counter((name_address(host, event.pci), event.code) for event in events)
    said = []
    for (name, code), count in counts.items():
        known = matrix.xids.get(code) if code is not None else None
        what = "fell off the bus" if code is None else f"Xid {code}{f' ({known.meaning})' if known is not None else ''}"
        said.append(f"{name} {what}{f', {count} times' if count > 1 else ''}")
    return "; ".join(said)
