"""Which libraries of the system the compiled files of wheels need, held against what the facts say of them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator

from packaging.version import Version

from provision.refresh.book import Book, Row
from provision.refresh.client import UnreachableError
from provision.refresh.elf import needed_of
from provision.refresh.guard import Alarms
from provision.refresh.wheels import Shelf

_FILE = "system_libraries.toml"
_WHERE = "what its compiled files need, without what the wheel or a slim image brings"
"""Where the needs of a row come from that is read here."""


def update_needs(
    book: Book,
    shelf: Shelf,
    alarms: Alarms,
    dated: datetime.date,
    base: Iterable[str],
    report: Callable[[int, int], None] = lambda *_: None,
) -> list[str]:
    """Read the newest release of each package whose needs were read from an older one.

    Libraries that a package opens from its code, and programs that it starts, are in no file's list. Such rows, and
    those of some files alone, are a person's to read: what is newer is told.

    Args:
        book: The facts, edited in place.
        shelf: The index; the pages of the packages have been read.
        alarms: Takes what must stop the refresh.
        dated: The day of new facts.
        base: Names that every system brings (``libc.so.6``).
        report: Told how many packages are done, of how many.

    Returns:
        What a person may want to know.
    """
    known = {row["id"] for row in book.rows(_FILE, "library")}
    base = frozenset(base)
    rows = [row for row in book.rows(_FILE, "need") if shelf.page(row["id"]) is not None]
    notes: list[str] = []
    for number, row in enumerate(rows, 1):
        version = _newest(shelf, row["id"])
        if version is not None and Version(version) > Version(row["version"]):
            if row["where"] != _WHERE:
                notes.append(
                    f"{row['id']} {version} came after {row['version']}, whose needs a person read: {row['where']}"
                )
                continue
            try:
                needed = _needed(shelf, row["id"], version)
            except UnreachableError as error:
                shelf.silent[f"{row['id']} {version}"] = "; ".join((error.message, *error.because))
                continue
            if needed is None:
                notes.append(f"{row['id']} {version} has no wheel for x86-64 that can be read to its end")
                continue
            notes += _take(row, version, needed, known, base, alarms)
            if row["version"] == version:
                book.date(_FILE, dated)
        report(number, len(rows))
    return notes


def _take(
    row: Row, version: str, needed: set[str], known: Iterable[str], base: Iterable[str], alarms: Alarms
) -> Iterator[str]:
    """Write the release that was read into a row, and say what no row names."""
    name, before = row["id"], row["libraries"]
    now = sorted(needed.intersection(known), key=str.lower)
    said = f"{name} {version} needs {' '.join(now) or 'nothing'} of the system, {row['version']} {' '.join(before)}"
    if not now:
        yield f"{said}: whether its row goes is for a person to say"
    elif set(now) == set(before):
        row["version"] = version
    elif alarms.raise_("meaning", f"system_libraries/{name}-{version}", said):
        row["libraries"], row["version"] = now, version
    else:
        return
    if strange := sorted(needed.difference(known, base)):
        yield f"{name} {version} needs {', '.join(strange)}, which no row of {_FILE} names"


def _newest(shelf: Shelf, name: str) -> str | None:
    versions = [
        Version(text) for text, files in shelf.releases(name).items() if not all(row.is_yanked for row in files)
    ]
    return str(max((version for version in versions if not version.is_prerelease), default="")) or None


def _needed(shelf: Shelf, name: str, version: str) -> set[str] | None:
    """Return what the compiled files of a wheel for x86-64 need and the wheel does not bring."""
    own = [item for item in shelf.files(name, version) if "x86_64" in item.file and "musllinux" not in item.file]
    if not own:
        return None
    speaker = max(own, key=lambda item: item.file)
    kept = shelf.reader.keep(speaker, "needed")
    if kept is None:
        with shelf.reader.open(speaker) as wheel:
            inside = wheel.names(r".*\.so(\.[0-9.]+)?")
            found: set[str] = set()
            is_whole = True
            for member in inside:
                with wheel.unpacked(member) as file:
                    needed = needed_of(file)
                is_whole = is_whole and needed is not None
                found.update(needed or ())
            kept = {"needed": sorted(found - {member.rpartition("/")[2] for member in inside}), "is_whole": is_whole}
        shelf.reader.keep(speaker, "needed", kept)
    return set(kept["needed"]) if kept["is_whole"] else None
