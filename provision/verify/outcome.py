"""What a check answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from provision.records import NOTHING, record

__all__ = ["FAIL", "PASS", "SKIP", "UNKNOWN", "Outcome", "failed", "passed", "skipped", "unknown"]

PASS: Final = "pass"  # noqa: S105 - no password
FAIL: Final = "fail"
SKIP: Final = "skip"
UNKNOWN: Final = "unknown"


@record
class Outcome:
    """The answer of one check about one target.

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


def passed(seen: str, *, figures: Mapping[str, float] = NOTHING) -> Outcome:
    """Return a pass."""
    return Outcome(status=PASS, seen=seen, figures=figures)


def failed(
    seen: str,
    expected: str = "",
    *,
    subjects: Iterable[str] = (),
    remedy: str = "",
    figures: Mapping[str, float] = NOTHING,
) -> Outcome:
    """Return a failure."""
    return Outcome(status=FAIL, seen=seen, expected=expected, subjects=tuple(subjects), remedy=remedy, figures=figures)


def skipped(why: str) -> Outcome:
    """Return that the question does not arise here."""
    return Outcome(status=SKIP, seen=why)


def unknown(why: str, *, remedy: str = "") -> Outcome:
    """Return that the question arises and has no answer."""
    return Outcome(status=UNKNOWN, seen=why, remedy=remedy)
