"""What a package index has of a distribution: every release, for which Python, and what it asks for.

The files of ``published/`` are read one by one, when somebody asks for their distribution. They tell of releases what
an installer reads before it installs anything, of all versions, where ``wheels/`` tells all of some.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from provision.errors import DataError
from provision.records import record

SOURCE = "sdist"
_BEFORE, _BETWEEN, _BEHIND = b'"requires": [\n[', b"],\n[", b"]\n],\n"


@record
class Need:
    """One requirement of a release, for Linux and CPython.

    Attributes:
        name: Normalised.
        extras: Extras of it that are asked for.
        specifier: Clauses, empty for any version.
        marker: What is left of the marker: Pythons and machines.
    """

    name: str
    extras: tuple[str, ...]
    specifier: str
    marker: str


class PublishedRelease:
    """One version.

    Attributes:
        version: Public version.
        requires_python: Clauses, empty for any.
        is_yanked: It was withdrawn: only an exact pin takes it.
        has_needs: What it asks for was read.
    """

    __slots__ = ("_group", "_package", "is_yanked", "requires_python", "version")

    def __init__(self, package: PublishedPackage, version: str, group: dict[str, Any]) -> None:
        self._package = package
        self._group = group
        self.version = version
        self.requires_python: str = group.get("requires_python", "")
        self.is_yanked = version in group.get("yanked", ())

    @property
    def has_needs(self) -> bool:
        """Tell whether what it asks for was read."""
        return "requires" in self._group

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras that it has."""
        return tuple(extra for extra in self._asks if extra)

    def needs(self, extra: str = "") -> tuple[Need, ...]:
        """Return what it asks for, by itself or for an extra; nothing for an extra that it lacks."""
        return tuple(need_of(text) for text in self._asks.get(extra, ()))

    @property
    def _asks(self) -> dict[str, list[str]]:
        lists = map(self._package.ask, places_of(self._group.get("requires", "")))
        return {words[0]: words[1:] for words in lists}

    def file_for(self, python: str, machine: str) -> str | None:
        """Return what an installer would take on a Python: ``wheel``, ``sdist``, or ``None`` for nothing.

        Args:
            python: ``3.11`` or ``3.13t``.
            machine: ``x86_64`` or ``aarch64``.
        """
        return _file_for(self._package.files[self._group["files"]], python, machine)

    def pythons(self, machine: str) -> tuple[str, ...]:
        """Return the Pythons that its wheels name in their tags, oldest first; none where they are for all."""
        found = []
        for part in self._package.files[self._group["files"]].split("; "):
            head, *words = part.split(" ")
            if head in ("any", machine):
                found += [word for word in words if not word.endswith(("+", "t"))]
        return tuple(found)


class PublishedPackage:
    """The releases of one distribution, newest first; pre-releases are left out.

    Args:
        path: A file of ``published/``.

    Raises:
        DataError: The file is malformed.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        try:
            # What releases ask for is most of a file, one list a line; one request needs a list or two of it.
            content = path.read_bytes()
            head, start, rest = content.partition(_BEFORE)
            asks, end, rest = rest.partition(_BEHIND)
            document = json.loads(head + rest if start and end else content)
            self._asks: list[Any] = asks.split(_BETWEEN) if start and end else document["requires"]
            self.dated: str = document["dated"]
            self.files: list[str] = document["files"]
            self._groups = {version: group for group in document["releases"] for version in group["versions"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._fault(error) from error
        self.versions = tuple(self._groups)
        self._releases: dict[str, PublishedRelease] = {}
        self._places: dict[str, int] = {}

    def places(self, specifier: str, admits: Callable[[str, str], bool]) -> int:
        """Return which of its versions a specifier admits: a bit for each, the lowest for the newest.

        Args:
            specifier: Clauses.
            admits: What tells whether clauses admit a version; always the same.
        """
        found = self._places.get(specifier)
        if found is None:
            found = sum(1 << place for place, version in enumerate(self.versions) if admits(specifier, version))
            self._places[specifier] = found
        return found

    def ask(self, place: int) -> list[str]:
        """Return one list of requirements, behind the extra that it is for.

        Raises:
            DataError: There is none, or it is malformed.
        """
        try:
            if isinstance(self._asks[place], bytes):
                self._asks[place] = json.loads(b"[%b]" % self._asks[place])
            found: list[str] = self._asks[place]
        except (ValueError, IndexError) as error:
            raise self._fault(error) from error
        return found

    def _fault(self, error: Exception) -> DataError:
        why = f"{type(error).__name__}: {error}"
        return DataError(f"published/{self.name}.json cannot be read", because=(why,))

    def release(self, version: str) -> PublishedRelease | None:
        """Return one release, or ``None`` where there is none of that version."""
        if version not in self._releases:
            group = self._groups.get(version)
            if group is None:
                return None
            self._releases[version] = PublishedRelease(self, version, group)
        return self._releases[version]


def places_of(runs: str) -> Iterator[int]:
    """Yield the places in a list that runs name, both ends included: ``0 4-7``."""
    for run in runs.split():
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


@lru_cache(maxsize=None)
def need_of(text: str) -> Need:
    """Read one requirement in the form that ``published/`` has it."""
    head, _, marker = text.partition("; ")
    end = next((place for place, char in enumerate(head) if char in "[<>=!~"), len(head))
    name, extras, specifier = head[:end], "", head[end:]
    if specifier.startswith("["):
        extras, _, specifier = specifier[1:].partition("]")
    return Need(name=name, extras=tuple(extras.split(",")) if extras else (), specifier=specifier, marker=marker)


@lru_cache(maxsize=None)
def _file_for(files: str, python: str, machine: str) -> str | None:
    minor = int(python.rstrip("t").partition(".")[2])
    has_source = False
    for part in files.split("; "):
        head, *words = part.split(" ")
        has_source = has_source or head == SOURCE
        for word in words if head in ("any", machine) else ():
            is_pure = word.endswith("+") and (not python.endswith("t") or word == "3.0+")
            if word == python or (is_pure and int(word[2:-1]) <= minor):
                return "wheel"
    return SOURCE if has_source else None
