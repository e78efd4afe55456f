"""What rows of every framework have in common: origins, bounds as people write them, the day of a release, its code."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Any

from provision.index.page import IndexFile
from provision.refresh.book import Row
from provision.refresh.fatbin import ordered_targets
from provision.refresh.wheels import Shelf

_RANK = {">=": 0, ">": 1, "==": 2, "===": 2, "~=": 3, "!=": 4, "<=": 5, "<": 6}


def origin(source: Sequence[str], where: str, status: str, confidence: str, note: str | None = None) -> Row:
    """Return one entry of ``evidence``."""
    entry: Row = {"source": list(source), "where": where, "status": status, "confidence": confidence}
    return entry | ({"note": note} if note else {})


def bound_text(text: str) -> str:
    """Return a bound in the order that people write: from below, exact, exclusions, from above."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return ",".join(sorted(parts, key=lambda part: (_RANK.get(re.match(r"[=<>!~]*", part)[0], 9), part)))  # type: ignore[index]


def requires_python_text(files: Iterable[IndexFile]) -> str | None:
    """Return the bound on Python that the page states for a release."""
    stated = sorted({row.requires_python for row in files if row.requires_python})
    return bound_text(stated[0]) if stated else None


def day_of(files: Iterable[IndexFile]) -> datetime.date | None:
    """Return the day on which the first file of a release was uploaded."""
    moments = sorted(row.uploaded for row in files if row.uploaded)
    return datetime.date.fromisoformat(moments[0][:10]) if moments else None


def exact(text: str | None) -> str | None:
    """Return the version of ``==VERSION``; ``None`` for any other bound."""
    found = re.fullmatch(r"==([0-9][^*,]*)", text or "")
    return found[1] if found else None


def specifiers(requires: Iterable[Sequence[str]], *, extra: str = "", machine: str = "x86_64") -> dict[str, str]:
    """Return name → bound of the requirements of a release that hold on one machine.

    Args:
        requires: Rows of ``[name, specifier, marker, extra]``.
        extra: The extra they belong to, none unless said.
        machine: Requirements that are bound to the other machine are left out.
    """
    found: dict[str, str] = {}
    for name, bound, marker, of in requires:
        if of == extra and ("platform_machine" not in marker or f'"{machine}"' in marker):
            found.setdefault(name, bound_text(bound))
    return found


def differing(before: Row, now: Row, keys: Iterable[str]) -> list[tuple[str, Any, Any]]:
    """Return the keys of two rows whose values differ, where the older row has any."""
    return [
        (key, before[key], now.get(key)) for key in keys if before.get(key) is not None and before[key] != now.get(key)
    ]


def targets_of(shelf: Shelf, speaker: IndexFile) -> list[str] | None:
    """Return the targets of all code in a wheel; ``None`` where not all of it was seen."""
    kept = shelf.reader.keep(speaker, "kernels")
    if kept is None:
        targets: set[str] = set()
        is_whole = True
        with shelf.reader.open(speaker) as wheel:
            for member in wheel.names(r".*\.so(\.[0-9.]+)?"):
                seen, is_seen_whole = wheel.targets(member)
                targets |= seen
                is_whole = is_whole and is_seen_whole
        kept = {"targets": ordered_targets(targets), "is_whole": is_whole}
        shelf.reader.keep(speaker, "kernels", kept)
    return list(kept["targets"]) if kept["is_whole"] else None
