"""One fact of a machine as it was judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from provision.records import NOTHING, record

__all__ = ["FAIL", "PASS", "SKIP", "UNKNOWN", "Signal", "failed", "passed", "skipped", "unknown"]

PASS: Final = "pass"  # noqa: S105 - no password
FAIL: Final = "fail"
SKIP: Final = "skip"
UNKNOWN: Final = "unknown"


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
    """

    status: str
    seen: str
    expected: str = ""
    subjects: tuple[str, ...] = ()
    remedy: str = ""
    figures: Mapping[str, float] = NOTHING


def passed(seen: str, *, figures: Mapping[str, float] = NOTHING) -> Signal:
    """Return a pass."""
    return Signal(status=PASS, seen=seen, figures=figures)


def failed(
    seen: str,
    expected: str = "",
    *,
    subjects: Iterable[str] = (),
    remedy: str = "",
    figures: Mapping[str, float] = NOTHING,
) -> Signal:
    """Return a failure."""
    return Signal(status=FAIL, seen=seen, expected=expected, subjects=tuple(subjects), remedy=remedy, figures=figures)


def skipped(why: str) -> Signal:
    """Return that the question does not arise here."""
    return Signal(status=SKIP, seen=why)


def unknown(why: str, *, remedy: str = "") -> Signal:
    """Return that the question arises and has no answer."""
    return Signal(status=UNKNOWN, seen=why, remedy=remedy)
