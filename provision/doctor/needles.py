"""Literal parts of patterns: words a line must hold before it is worth asking a regular expression about it.

A log of some megabytes is asked some hundred times. Looking for a plain string is many times faster than matching a
pattern against every line, and most patterns have a part that must stand there literally.
"""

from __future__ import annotations

import json
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from heapq import merge
from importlib import import_module
from importlib.util import source_hash
from itertools import accumulate
from pathlib import Path
from typing import Any

from provision.matrix.cache import cache_folder

_FEWEST_CHARACTERS = 3
"""A shorter needle stands in most lines and spares nothing."""

_LINE_CHARACTERS = 16_384
_WORD = re.compile(r"[a-z]{2,}")
_RUN = re.compile(r"[a-z]{2,}")
_FOUND: dict[str, list[str] | None] = {}
_ALSO_MATCHED = str.maketrans({"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"})
"""What a pattern takes for an ASCII letter when it ignores case, beside that letter's two forms."""
_TYPESET = (*((quote, "'") for quote in "\u2018\u2019\u00b4"), ("\u201c", '"'), ("\u201d", '"'), ("\u00a0", " "))
"""What stands in pasted messages → what the program wrote."""


def fold(text: str) -> str:
    """Return a text in lower case with every character where it was."""
    return text.lower() if text.isascii() else text.translate(_ALSO_MATCHED).lower()


def _straighten(text: str) -> str:
    """Return a text with the quotes and spaces of a keyboard, where a forum or a program that quotes put others."""
    if not text.isascii():
        for other, plain in _TYPESET:
            text = text.replace(other, plain)
    return text.replace("\\'", "'").replace('\\"', '"') if "\\" in text else text


@lru_cache(maxsize=None)
def _longest_word(needle: str) -> str:
    """Return the longest run of letters in a needle, which some word of a text that holds the needle holds whole."""
    return max(_RUN.findall(needle), key=len, default="")


def keep_needles() -> None:
    """Write the needles that this run had to find beside those of other runs, so that the next one need not.

    They go to the cache folder. One that is missing or cannot be written to only costs time.
    """
    path = _kept_path()
    if path is None or not _FOUND:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(_kept() | _FOUND), encoding="utf-8")
        draft.replace(path)
        _FOUND.clear()
        _kept.cache_clear()


@lru_cache(maxsize=None)
def _kept_path() -> Path | None:
    """Return where needles are kept: under the digest of what finds them, by this interpreter."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        digest = source_hash(Path(__file__).read_bytes()).hex()
    except OSError:
        return None
    return folder / f"needles-{sys.version_info[0]}.{sys.version_info[1]}-{digest}.json"


@lru_cache(maxsize=None)
def _kept() -> dict[str, list[str] | None]:
    path = _kept_path()
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes()) if path is not None else {}
        if isinstance(found, dict) and all(needles is None or _are_literals(needles) for needles in found.values()):
            return found
    return {}


def _are_literals(needles: Any) -> bool:
    return isinstance(needles, list) and all(isinstance(needle, str) for needle in needles)


@lru_cache(maxsize=None)
def find_needles(pattern: str) -> tuple[str, ...] | None:
    """Return literals in lower case of which a line that matches holds at least one, case ignored.

    Args:
        pattern: A regular expression.

    Returns:
        The literals, or ``None`` where the pattern has none that is worth looking for: then every line must be asked.
    """
    kept = _kept()
    if pattern in kept:
        needles = kept[pattern]
        return tuple(needles) if needles is not None else None
    try:
        # The interpreter's own reading of a pattern is not a public module; without it every line is asked.
        parsed = import_module("re._parser").parse(pattern)
    except (ImportError, AttributeError):
        return None
    found = _of_sequence(parsed)
    _FOUND[pattern] = list(found) if found is not None else None
    return found


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
        lines: Its lines, without their ends; what is longer than any line that a person reads is cut into several.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        text = _straighten(text)
        parts = text.splitlines(keepends=True)
        if max(map(len, parts), default=0) > _LINE_CHARACTERS:
            # What an expression takes for a line may grow with its square.
            parts = [part[at : at + _LINE_CHARACTERS] for part in parts for at in range(0, len(part), _LINE_CHARACTERS)]
            self.lines = [part.splitlines()[0] for part in parts]
        else:
            self.lines = text.splitlines()
        self._folded = fold(text)
        self._words = "\n".join(dict.fromkeys(_WORD.findall(self._folded)))
        self._starts = [0, *accumulate(map(len, parts))]
        self._known: dict[str, Sequence[int]] = {}

    def has_any(self, needles: Iterable[str]) -> bool:
        """Tell whether a line holds one of some literals in lower case."""
        return any(self._lines_with(needle) for needle in needles)

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
        # What is not in the list of words, a small part of the text, is not in the text.
        if _longest_word(needle) not in self._words:
            return
        place = self._folded.find(needle)
        while place >= 0:
            number = bisect_right(self._starts, place) - 1
            yield number
            # One hit a line is enough.
            place = self._folded.find(needle, self._starts[number + 1])
