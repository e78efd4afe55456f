"""What a rule found."""

from __future__ import annotations

from provision.records import record

CONFIDENCES = ("high", "medium", "low")


@record
class Sign:
    """Why a diagnosis holds.

    Attributes:
        confidence: ``high``: the target's own state proves it. ``medium``: a message that has this cause most often, or
            state that fits. ``low``: worth a look.
        seen: What was found, one clause each, the most telling first; lines of logs in quotes.
        expected: What a healthy target shows instead.
        subjects: What is affected, where it is one of several (``GPU 3 (0000:5d:00.0)``).
        fix: Steps for this very case, in place of the fact's; commands in backticks.
        unseen: What would settle it and could not be seen.
        seconds: When it first happened, by the kernel log's clock; orders causes before consequences.
        spot: Text and line of the message that it rests on, where it rests on one alone.
        message_kind: What that message is, where it is not what the diagnosis' messages are most often.
        is_aside: Whether that message is a warning or a report, which programs go on after.
    """

    confidence: str
    seen: tuple[str, ...]
    expected: str = ""
    subjects: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    seconds: float | None = None
    spot: tuple[str, int] | None = None
    message_kind: str = ""
    is_aside: bool = False
