"""One fact of a machine as it was judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from provision.records import NOTHING, record

PASS: Final = "pass"  # noqa: S105 - no password
FAIL: Final = "fail"
SKIP: Final = "skip"
UNKNOWN: Final = "unknown"


@record
class Fault:
    """One thing that is wrong.

    Attributes:
        said: A clause with its subject, without a full stop (``GPU 3 (0000:5d:00.0) has 12 retired pages``).
        subject: What is at fault, where it is one of several.
        kind: Tells faults of one signal apart that have different causes.
        certainty: ``high``: the state proves a fault. ``medium``: it fits one. ``low``: it is worth a look.
    """

    said: str
    subject: str = ""
    kind: str = ""
    certainty: str = "high"


@record
class Signal:
    """The answer to one question about one target.

    Attributes:
        status: ``pass``, ``fail``, ``skip`` (the question does not arise) or ``unknown`` (it does, and has no answer).
        seen: What was found, one clause without a full stop; of a skip or an unknown, why.
        expected: What should have been found; empty where ``seen`` says it.
        subjects: What is at fault, where it is one of several (``GPU 3 (0000:5d:00.0)``, ``mlx5_0/1``), in order.
        remedy: What to do, where more can be said than the check's own remedy.
        figures: Measured values by name with unit (``h2d_gb_s``), for reports and metrics.
        faults: What is wrong, each alone; a pass may have some that are not enough to fail.
    """

    status: str
    seen: str
    expected: str = ""
    subjects: tuple[str, ...] = ()
    remedy: str = ""
    figures: Mapping[str, float] = NOTHING
    faults: tuple[Fault, ...] = ()


def passed(seen: str, *, figures: Mapping[str, float] = NOTHING, faults: Iterable[Fault] = ()) -> Signal:
    """Return a pass."""
    return Signal(status=PASS, seen=seen, figures=figures, faults=tuple(faults))


def failed(
    seen: str,
    expected: str = "",
    *,
    subjects: Iterable[str] = (),
    remedy: str = "",
    figures: Mapping[str, float] = NOTHING,
    faults: Iterable[Fault] = (),
) -> Signal:
    """Return a failure; where its faults are not told apart, it is one."""
    named = tuple(subjects)
    return Signal(
        status=FAIL,
        seen=seen,
        expected=expected,
        subjects=named,
        remedy=remedy,
        figures=figures,
        faults=tuple(faults) or (Fault(said=seen, subject=named[0] if len(named) == 1 else ""),),
    )


def faulty(
    faults: Sequence[Fault], expected: str, *, remedy: str = "", figures: Mapping[str, float] = NOTHING
) -> Signal:
    """Return a failure that tells its faults one after the other."""
    subjects = dict.fromkeys(fault.subject for fault in faults if fault.subject)
    said = "; ".join(fault.said for fault in faults)
    return failed(said, expected, subjects=subjects, remedy=remedy, figures=figures, faults=faults)


def skipped(why: str) -> Signal:
    """Return that the question does not arise here."""
    return Signal(status=SKIP, seen=why)


def unknown(why: str, *, remedy: str = "") -> Signal:
    """Return that the question arises and has no answer."""
    return Signal(status=UNKNOWN, seen=why, remedy=remedy)
