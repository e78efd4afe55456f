"""The fact files as plain documents that can be edited, and written in the one way there is."""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packaging.version import Version

from provision.errors import DataError
from provision.matrix.canonical import encode_json, encode_toml

Row = dict[str, Any]

_READ: dict[Path, bytes] = {}
"""File → hash of what a book of this process last read there."""

KEYS: dict[tuple[str, str], tuple[str, ...]] = {
    ("cuda.toml", "release"): ("version",),
    ("drivers.toml", "distro_driver"): ("os", "branch", "flavour"),
    ("frameworks/torch.toml", "release"): ("version",),
    ("frameworks/torch.toml", "build"): ("torch", "variant"),
    ("frameworks/torch.toml", "unknown_build"): ("torch", "variant"),
    ("frameworks/tensorflow.toml", "release"): ("version",),
    ("frameworks/jax.toml", "release"): ("version", "variant"),
    ("companions.toml", "release"): ("package", "version"),
    ("ngc.toml", "release"): ("release",),
    ("prebuilt.toml", "release"): ("package", "version", "machines"),
    ("system_libraries.toml", "need"): ("id",),
    ("sources.toml", "source"): ("id",),
}
"""File and array that a refresh may touch → the keys that tell its rows apart."""

_ORDER: dict[tuple[str, str], Callable[[Row], Any]] = {
    ("cuda.toml", "release"): lambda row: _falling(row["version"]),
    ("frameworks/torch.toml", "release"): lambda row: _falling(row["version"]),
    ("frameworks/torch.toml", "build"): lambda row: (_falling(row["torch"]), _falling(row["cuda"])),
    ("frameworks/torch.toml", "unknown_build"): lambda row: (_falling(row["torch"]), _falling(row["cuda"])),
    ("frameworks/tensorflow.toml", "release"): lambda row: _falling(row["version"]),
    ("frameworks/jax.toml", "release"): lambda row: (_falling(row["version"]), -int(row["variant"].lstrip("abcdu"))),
    ("companions.toml", "release"): lambda row: (row["package"], _falling(row["version"])),
    ("ngc.toml", "release"): lambda row: _falling(row["release"]),
    ("prebuilt.toml", "release"): lambda row: (row["package"], _falling(row["version"]), row["machines"]),
    ("sources.toml", "source"): lambda row: row["id"],
}


class _falling:  # noqa: N801 - a key function that compares the other way round
    __slots__ = ("version",)

    def __init__(self, version: str) -> None:
        self.version = Version(version)

    def __lt__(self, other: _falling) -> bool:
        return self.version > other.version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _falling) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)


def is_as_read(path: Path) -> bool:
    """Tell whether a file is still what a book of this process read; true for one that none has read."""
    known = _READ.get(path.resolve())
    try:
        return known is None or hashlib.sha256(path.read_bytes()).digest() == known
    except OSError:
        return False


def forget(path: Path) -> None:
    """Forget what was read of a file that this process has written itself."""
    _READ.pop(path.resolve(), None)


def key_of(file: str, array: str, row: Row) -> str:
    """Return the words that tell a row apart in its array (``2.15.0 cu132``)."""
    values = (row.get(name, "") for name in KEYS[file, array])
    return " ".join(" ".join(value) if isinstance(value, list) else str(value) for value in values)


class Book:
    """A data folder in memory. Nothing reaches the disk through it.

    Args:
        folder: A folder laid out like ``compat/``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before: dict[str, Row] = {}
        self._after: dict[str, Row] = {}

    def document(self, name: str) -> Row:
        """Return a document to edit.

        Args:
            name: Path below the folder.

        Raises:
            DataError: The file is missing or broken.
        """
        if name not in self._after:
            try:
                content = (self.folder / name).read_bytes()
                _READ[(self.folder / name).resolve()] = hashlib.sha256(content).digest()
                text = content.decode("utf-8").replace("\r\n", "\n")
                parsed = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
            except (OSError, ValueError) as error:
                raise DataError(
                    f"the fact file {name} cannot be read",
                    because=(str(error),),
                    hints=("`provision data check` names every fault",),
                ) from error
            self._before[name] = parsed
            self._after[name] = copy.deepcopy(parsed)
        return self._after[name]

    def has(self, name: str) -> bool:
        """Tell whether there is such a file, or will be."""
        return name in self._after or (self.folder / name).is_file()

    def add(self, name: str, document: Row) -> Row:
        """Begin a file that is not there yet."""
        self._before[name], self._after[name] = {}, document
        return document

    def rows(self, name: str, array: str) -> list[Row]:
        """Return the rows of one array, to edit."""
        rows: list[Row] = self.document(name).setdefault(array, [])
        return rows

    def find(self, name: str, array: str, **values: Any) -> Row | None:
        """Return the first row with these values."""
        for row in self.rows(name, array):
            if all(row.get(key) == value for key, value in values.items()):
                return row
        return None

    def insert(self, name: str, array: str, row: Row) -> None:
        """Add a row where the order of its array puts it."""
        rows = self.rows(name, array)
        plain = {key: value for key, value in row.items() if value is not None and value not in ([], {}, ())}
        order = _ORDER.get((name, array))
        if order is None:
            place = self._beside(rows, plain)
        else:
            key = order(plain)
            place = next((number for number, other in enumerate(rows) if key < order(other)), len(rows))
        rows.insert(place, plain)

    @staticmethod
    def _beside(rows: list[Row], row: Row) -> int:
        """Rows of a system stand together, newest branch first, as people wrote them."""
        mine = [number for number, other in enumerate(rows) if other["os"] == row["os"]]
        if not mine:
            return len(rows)
        for number in mine:
            other = rows[number]
            if (-row["branch"], row["flavour"]) < (-other["branch"], other["flavour"]):
                return number
        return mine[-1] + 1

    def cite(self, source: Row, dated: datetime.date) -> None:
        """Make sure that a publication stands in ``sources.toml``."""
        if self.find("sources.toml", "source", id=source["id"]) is None:
            self.insert("sources.toml", "source", {**source, "retrieved": dated})

    def changed(self) -> list[str]:
        """Return the files whose facts are no longer those on disk, by name."""
        return sorted(name for name, after in self._after.items() if after != self._before[name])

    def before(self, name: str) -> Row:
        """Return a document as it is on disk."""
        return self._before[name]

    def touched(self) -> list[str]:
        """Return the files that were looked at."""
        return sorted(self._after)

    def date(self, name: str, dated: datetime.date) -> None:
        """Set the day of a file; an older one never replaces a newer one."""
        document = self.document(name)
        text = dated.isoformat()
        if str(document.get("dated", "")) < text:
            document["dated"] = dated if name.endswith(".toml") else text

    def texts(self) -> dict[str, str]:
        """Return file → canonical text of everything that changed."""
        return {
            name: encode_toml(name, self._after[name]) if name.endswith(".toml") else encode_json(self._after[name])
            for name in self.changed()
        }
