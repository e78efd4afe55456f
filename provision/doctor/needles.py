"""Literal parts of patterns: words a line must hold before it is worth asking a regular expression about it.

A log of some megabytes is asked some hundred times. Looking for a plain string is many times faster than matching a
pattern against every line, and most patterns have a part that must stand there literally.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import merge
from importlib import import_module
from itertools import accumulate
from typing import Any

__all__ = ["Page", "find_needles", "fold"]

_FEWEST_CHARACTERS = 3
"""A shorter needle stands in most lines and spares nothing."""

_ALSO_MATCHED = str.maketrans({"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"})
"""What a pattern takes for an ASCII letter when it ignores case, beside that letter's two forms."""


def fold(text: str) -> str:
    """Return a text in lower case with every character where it was."""
    return text.lower() if text.isascii() else text.translate(_ALSO_MATCHED).lower()


@lru_cache(maxsize=None)
def find_needles(pattern: str) -> tuple[str, ...] | None:
    """Return literals in lower case of which a line that matches holds at least one, case ignored.

    Args:
        pattern: A regular expression.

    Returns:
        The literals, or ``None`` where the pattern has none that is worth looking for: then every line must be asked.
    """
    try:
        # The interpreter's own reading of a pattern is no public module; without it every line is asked.
        parsed = import_module("re._parser").parse(pattern)
    except (ImportError, AttributeError):
        return None
    return _of_sequence(parsed)


def _of_sequence(items: Iterable[tuple[Any, Any]]) -> tuple[str, ...] | None:
    """Return the best needles of parts that all must match, one after the other."""
    options: list[tuple[str, ...]] = []
    run = ""
    for code, value in items:
        if str(code) == "LITERAL" and value < 128 and chr(value).isprintable():
            run += chr(value).lower()
            continue
        options.append((run,))
        run = ""
        found = _of_part(str(code), value)
        if found is not None:
            options.append(found)
    options.append((run,))
    best = max(options, key=lambda option: min(map(len, option)))
    return best if min(map(len, best)) >= _FEWEST_CHARACTERS else None


def _of_part(code: str, value: Any) -> tuple[str, ...] | None:
    """Return the needles of a part that is more than one character, where it has any."""
    if code == "SUBPATTERN":
        return _of_sequence(value[-1])
    if code in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _of_sequence(value[2]) if value[0] >= 1 else None
    if code == "BRANCH":
        branches = [_of_sequence(branch) for branch in value[1]]
        if all(branches):
            return tuple(dict.fromkeys(needle for branch in branches for needle in branch or ()))
    return None


class Page:
    """A text that is searched again and again: its lines, and which of them hold a needle.

    Attributes:
        name: Where the text comes from.
        lines: Its lines, without their ends.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = text.splitlines()
        self._folded = fold(text)
        self._starts = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
        self._known: dict[str, Sequence[int]] = {}

    def candidates(self, patterns: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield (line, pattern) by their numbers, in order, for every pair that may match; any other cannot."""
        return merge(*(self._pairs(position, pattern) for position, pattern in enumerate(patterns)))

    def _pairs(self, position: int, pattern: str) -> Iterator[tuple[int, int]]:
        needles = find_needles(pattern)
        if needles is None:
            numbers: Iterable[int] = range(len(self.lines))
        elif len(needles) == 1:
            numbers = self._lines_with(needles[0])
        else:
            numbers = sorted({number for needle in needles for number in self._lines_with(needle)})
        return ((number, position) for number in numbers)

    def _lines_with(self, needle: str) -> Sequence[int]:
        known = self._known.get(needle)
        if known is None:
            known = self._known[needle] = tuple(self._search(needle))
        return known

    def _search(self, needle: str) -> Iterator[int]:
        place = self._folded.find(needle)
        while place >= 0:
            number = bisect_right(self._starts, place) - 1
            yield number
            # One hit a line is enough.
            place = self._folded.find(needle, self._starts[number + 1])
