"""Two states of the facts side by side: rows that came, changed and went, each with its source."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from provision.matrix.published import places_of
from provision.records import record, replace
from provision.refresh.book import KEYS, Book, Row, key_of

_PLACES = {
    "frameworks/torch.toml": "torch",
    "frameworks/tensorflow.toml": "tensorflow",
    "frameworks/jax.toml": "jax",
    "cuda.toml": "CUDA",
    "drivers.toml": "driver",
    "sources.toml": "source",
}
_MARKS = {"added": "+", "changed": "~", "removed": "-"}
_VALUE_LENGTH_MAX = 100


@record
class Change:
    """One row that differs.

    Attributes:
        file: Path below the data folder.
        array: Its array of tables; ``releases`` of a wheel file.
        kind: ``added``, ``changed`` or ``removed``.
        row: What tells the row apart (``2.15.0 cu132``).
        fields: For a changed row, (field, before, after) as text.
        source: Ids of the publications of the row.
        summary: What an added row says, in a few words.
    """

    file: str
    array: str
    kind: str
    row: str
    fields: tuple[tuple[str, str, str], ...] = ()
    source: tuple[str, ...] = ()
    summary: str = ""


def changes_of(book: Book) -> tuple[Change, ...]:
    """Return what differs between the facts on disk and those in the book, by file and row."""
    changes: list[Change] = []
    for name in book.changed():
        before, after = book.before(name), book.document(name)
        if name.startswith("wheels/"):
            changes += _of_wheels(name, before, after)
            continue
        if name.startswith("published/"):
            changes += _of_tables(name, "releases", _releases_of(before), _releases_of(after), after["source"])
            continue
        for file, array in KEYS:
            if file == name:
                changes += _of_rows(name, array, before.get(array, []), after.get(array, []))
    return tuple(changes)


def _releases_of(document: Row) -> dict[str, Row]:
    """Return version → what a file of ``published/`` says of it, whatever it shares with other releases."""
    found = {}
    for group in document.get("releases", ()):
        for version in group["versions"]:
            row = {key: group[key] for key in ("requires_python",) if key in group}
            if "requires" in group:
                row["requires"] = [document["requires"][place] for place in places_of(group["requires"])]
            row["files"] = document["files"][group["files"]]
            row["yanked"] = version in group.get("yanked", ())
            found[version] = row
    return found


def _of_rows(file: str, array: str, before: Iterable[Row], after: Iterable[Row]) -> list[Change]:
    old = {key_of(file, array, row): row for row in before}
    new = {key_of(file, array, row): row for row in after}
    return _of_tables(file, array, old, new)


def _of_wheels(file: str, before: Row, after: Row) -> list[Change]:
    old = {row["version"]: row for row in before.get("releases", [])}
    new = {row["version"]: row for row in after["releases"]}
    origin = [source for source in after["source"] if source.startswith(("pypi-", "pytorch-"))]
    return _of_tables(file, "releases", old, new, origin)


def _of_tables(
    file: str, array: str, old: Mapping[str, Row], new: Mapping[str, Row], origin: Iterable[str] = ()
) -> list[Change]:
    found = []
    for key in [*new, *(key for key in old if key not in new)]:
        row = new.get(key, old.get(key, {}))
        change = Change(file=file, array=array, kind="changed", row=key, source=tuple(row.get("source", origin)))
        if key not in old:
            found.append(replace(change, kind="added", summary=_summary(row)))
        elif key not in new:
            found.append(replace(change, kind="removed"))
        elif old[key] != new[key]:
            found.append(replace(change, fields=_fields(old[key], new[key])))
    return found


def _fields(old: Row, new: Row) -> tuple[tuple[str, str, str], ...]:
    found: list[tuple[str, str, str]] = []
    for key in [*new, *(key for key in old if key not in new)]:
        if old.get(key) == new.get(key):
            continue
        if key == "wheels":
            have = {wheel["file"]: wheel for wheel in old.get(key, [])}
            now = {wheel["file"]: wheel for wheel in new.get(key, [])}
            found += [
                (f"wheels.{file}", _wheel(have.get(file)), _wheel(now.get(file)))
                for file in sorted(set(have) | set(now))
                if have.get(file) != now.get(file)
            ]
        else:
            found.append((key, _text(old.get(key)), _text(new.get(key))))
    return tuple(found)


def _wheel(wheel: Row | None) -> str:
    return "" if wheel is None else f"{wheel.get('size', '?')} bytes, sha256 {str(wheel.get('sha256', '?'))[:16]}"


def _summary(row: Row) -> str:
    if "wheels" in row:
        wheels = row["wheels"]
        size = max((wheel.get("size") or 0 for wheel in wheels), default=0)
        said = f"{len(wheels)} {'wheel' if len(wheels) == 1 else 'wheels'}, up to {size / 1e6:.1f} MB"
        return said + (", withdrawn" if row.get("yanked") else "")
    keys = ("cuda", "version", "pythons", "sm", "cudnn", "released", "component", "transition_to", "requires", "title")
    return ", ".join(f"{key} {_text(row[key])}" for key in keys if row.get(key) not in (None, [], {}))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        text = " ".join(_text(item) for item in value)
    elif isinstance(value, dict):
        text = ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    else:
        text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    return text if len(text) <= _VALUE_LENGTH_MAX else f"{text[: _VALUE_LENGTH_MAX - 1]}…"


def show_changes(changes: Iterable[Change]) -> str:
    """Return the changes as lines that a person reviews."""
    lines: list[str] = []
    file = ""
    for change in changes:
        if change.file != file:
            file = change.file
            lines.append(f"{file}")
        source = f"  [{', '.join(change.source)}]" if change.source else ""
        summary = f"  {change.summary}" if change.summary else ""
        lines.append(f"  {_MARKS[change.kind]} {change.array} {change.row}{summary}{source}")
        lines += [f"      {name}: {before or '(none)'} → {after or '(none)'}" for name, before, after in change.fields]
    return "\n".join(lines)


def changelog_lines(changes: Iterable[Change], dated: datetime.date) -> list[str]:
    """Return the entry for the **Facts** part of a changelog, as lines of a list item; none where nothing counts."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        if change.file != "sources.toml":
            kinds.setdefault((_place(change), change.kind), []).append(change.row)
    if not kinds:
        return []
    parts: dict[str, list[str]] = {"added": [], "changed": [], "removed": []}
    for (place, kind), rows in sorted(kinds.items()):
        parts[kind].append(f"{place} {_span(place, rows)}")
    said = "; ".join(f"{_WORDS[kind]} {', '.join(items)}" for kind, items in parts.items() if items)
    text = f"Upstream as of {dated.isoformat()}: {said}."
    return textwrap.wrap(
        text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


_WORDS = {"added": "new are", "changed": "corrected", "removed": "gone"}
_NAMED = 3
_WIDTH = 128


def _span(place: str, rows: list[str]) -> str:
    """Return a few rows by name, many by their ends; rows come newest first."""
    if place == "driver":
        systems: dict[str, list[str]] = {}
        for row in rows:
            system, _, rest = row.partition(" ")
            systems.setdefault(system, []).append(rest)
        return "packages of " + ", ".join(f"{system} ({', '.join(names)})" for system, names in systems.items())
    named = [row.replace(" ", "+", 1) for row in rows]
    return " and ".join(named) if len(named) < _NAMED else f"{named[-1]} to {named[0]} ({len(named)})"


def _place(change: Change) -> str:
    if change.file.startswith("wheels/"):
        return change.file.removeprefix("wheels/").removesuffix(".json")
    return _PLACES.get(change.file, change.file.removesuffix(".toml"))
