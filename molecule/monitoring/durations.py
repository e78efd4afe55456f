"""Make the waiting times of rules and routes shorter by one factor, and nothing else.

The committed rules wait for minutes and hours, as they must; ``promtool`` holds those times. A scenario cannot wait for
them, so here every duration is divided by the same number: what is pending how long, windows, offsets and the intervals
of scrapes, rules and notifications. How they stand to each other stays, and so does how many samples a window holds.
Thresholds, labels and texts are not touched: a line that is not a duration leaves as it came.

Source: Prometheus, "Configuration" and "Querying basics": ``((([0-9]+)y)?(([0-9]+)w)?…(([0-9]+)ms)?|0)``.
"""

from __future__ import annotations

import re

__all__ = ["DURATION", "mask", "milliseconds", "shorten", "shorten_text"]

_UNITS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
DURATION = r"(?:[0-9]+(?:ms|[ywdhms]))+"
_KEYS = "for|keep_firing_for|interval|[a-z]+_interval|[a-z]+_timeout|group_wait"
_SETTING = re.compile(rf"^(?P<before> *(?:- )?(?:{_KEYS}): ){DURATION}$")
_EXPRESSION = re.compile(r"^ *(?:- )?expr: ")
# A window, a window with the step of a subquery, and an offset.
_WITHIN = re.compile(rf"(?<=\[){DURATION}(?=[\]:])|(?<=:){DURATION}(?=\])|(?<=offset ){DURATION}\b")
_PART = re.compile(r"([0-9]+)(ms|[ywdhms])")


def milliseconds(duration: str) -> int:
    """Return a duration of Prometheus in milliseconds.

    Raises:
        ValueError: It is none.
    """
    if not re.fullmatch(DURATION, duration):
        raise ValueError(f"`{duration}` is not a duration: write it like 30s or 1h30m")
    return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(duration))


def shorten(duration: str, factor: int) -> str:
    """Return a duration divided by a factor, in whole seconds where it has them and in milliseconds else.

    Raises:
        ValueError: It is not a duration, or less than a millisecond would be lost or left.
    """
    whole = milliseconds(duration)
    if whole % factor or not whole:
        raise ValueError(f"{duration} divided by {factor} is not a whole number of milliseconds")
    rest = whole // factor
    return f"{rest}ms" if rest % 1000 else f"{rest // 1000}s"


def shorten_text(text: str, factor: int) -> str:
    """Return rules or routes with every duration divided; all else keeps its bytes.

    Args:
        text: YAML with one setting a line, expressions included, as ``provision fleet rules`` writes it.
        factor: What each duration is divided by.

    Raises:
        ValueError: A duration cannot be divided without a rest.
    """
    return _replace(text, lambda match: shorten(match, factor))


def mask(text: str) -> str:
    """Return a text with a question mark in the place of every duration: what shortening must leave alone."""
    return _replace(text, lambda _match: "?")


def _replace(text, change):
    def replace(line):
        if setting := _SETTING.match(line):
            before = setting["before"]
            return before + change(line[len(before) :])
        return _WITHIN.sub(lambda match: change(match[0]), line) if _EXPRESSION.match(line) else line

    return "\n".join(replace(line) for line in text.split("\n"))
