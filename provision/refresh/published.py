"""Bring ``published/*.json`` up to date: which releases a distribution has, for which Python, and what they need."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from email.parser import HeaderParser
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from provision.index.page import IndexFile, Page
from provision.matrix.published import places_of
from provision.refresh.book import Book, Row
from provision.refresh.client import AbsentError, Client, UnreachableError, each
from provision.refresh.guard import Alarms
from provision.refresh.index import read_page
from provision.refresh.requires import extras_of, reduce_requires
from provision.refresh.tags import MACHINES, version_of
from provision.refresh.wheel import WheelReader

_SOURCE = "pypi-simple-index"
_METADATA_BYTES_MAX = 4 * 1024 * 1024
_TAIL_BYTES = 32 * 1024
"""METADATA stands at the end of a wheel, before its directory."""


def published_file(name: str) -> str:
    """Return the fact file of a distribution."""
    return f"published/{name}.json"


class Registry:
    """What an index says of the releases of some distributions.

    Requirements among these distributions are kept, and of others those that are always there and name releases: a
    file may pin one that they exclude. What else a release asks for decides nothing here.

    Args:
        book: The facts, edited in place.
        client: Who asks.
        index_url: Root of the index.
        alarms: Takes what must stop the refresh.
        names: Every distribution whose requirements are kept.
        since: Of releases from before this day (ISO) only versions are kept.
        whole: Distributions whose releases from before are read too, from source where there is no wheel.
        without: Extras whose requirements are not kept, with stars: those for work on the distribution itself.
        dated: The day of new facts.
        jobs: Threads.
        cache: Folder for what need not be read twice.

    Attributes:
        silent: What could not be read → why.
    """

    def __init__(
        self,
        book: Book,
        client: Client,
        index_url: str,
        alarms: Alarms,
        *,
        names: Iterable[str],
        since: str,
        whole: Iterable[str] = (),
        without: Iterable[str],
        dated: datetime.date,
        jobs: int = 4,
        cache: Path | None = None,
    ) -> None:
        self.book = book
        self.silent: dict[str, str] = {}
        self._client = client
        self._reader = WheelReader(client, cache)
        self._index_url = index_url
        self._alarms = alarms
        self._names = frozenset(names)
        self._since = since
        self._whole = frozenset(whole)
        self._without = frozenset(without)
        self._dated = dated
        self._jobs = jobs
        words = "\n".join(("bounds", since, *sorted(self._names), "", *sorted(self._without)))
        self._scope = hashlib.sha256(words.encode()).hexdigest()[:12]

    def update(self, name: str) -> bool:
        """Read one distribution and write down what is new; return whether its page could be read."""
        try:
            page = read_page(self._client, self._index_url, name)
        except UnreachableError as error:
            self.silent[name] = "; ".join((error.message, *error.because))
            return False
        for column in page.unseen:
            self._alarms.raise_("unseen", f"{name}.{column}", f"the page of {name} has a column `{column}`")
        releases = _releases_of(page)
        known = self._known(name)
        is_whole = name in self._whole
        wanted = [
            version
            for version, files in releases.items()
            if version not in known and (is_whole or self._is_recent(files))
        ]
        read = self._read(name, wanted, releases)
        rows = []
        for version, files in releases.items():
            row: Row = {"version": version}
            bound = next((file.requires_python for file in files if file.requires_python), None)
            if bound is not None and _is_specifier(bound):
                row["requires_python"] = ",".join(sorted(part.strip().replace(" ", "") for part in bound.split(",")))
            asks = known.get(version) or read.get(version)
            if asks is not None:
                row["requires"] = asks
            row["files"] = _coverage(files)
            row["is_yanked"] = all(file.is_yanked for file in files)
            rows.append(row)
        self._write(name, rows)
        return True

    def _known(self, name: str) -> dict[str, list[list[str]]]:
        """Return version → what is known of its requirements; nothing where others were kept then."""
        file = published_file(name)
        if not self.book.has(file) or self.book.document(file).get("scope") != self._scope:
            return {}
        document = self.book.document(file)
        found: dict[str, list[list[str]]] = {}
        for group in document["releases"]:
            if "requires" not in group:
                continue
            asks = [document["requires"][place] for place in places_of(group["requires"])]
            found |= dict.fromkeys(group["versions"], asks)
        return found

    def _is_recent(self, files: Sequence[IndexFile]) -> bool:
        return max((file.uploaded or self._since)[:10] for file in files) >= self._since

    def _read(
        self, name: str, versions: Sequence[str], releases: Mapping[str, Sequence[IndexFile]]
    ) -> dict[str, list[list[str]]]:
        """Return version → requirements by extra, without those that the index does not tell."""
        has_source = name in self._whole
        asked = [
            (version, file)
            for version in versions
            if (file := _spokesman(releases[version], has_source=has_source)) is not None
        ]

        def read(item: tuple[str, IndexFile]) -> dict[str, list[str]] | str:
            try:
                return self._said(item[1])
            except UnreachableError as error:
                return "; ".join((error.message, *error.because))

        found: dict[str, list[list[str]]] = {}
        kept: dict[tuple[tuple[str, ...], tuple[str, ...]], list[list[str]]] = {}
        for (version, file), said in zip(asked, each(read, asked, self._client, self._jobs), strict=True):
            if isinstance(said, str):
                self.silent[f"{name} {version}"] = said
                continue
            lines, extras = tuple(said["requires"]), tuple(said["extras"])
            try:
                if (lines, extras) not in kept:
                    kept[lines, extras] = self._reduce(lines, extras, file.requires_python)
            except (InvalidRequirement, InvalidSpecifier, ValueError) as error:
                self.silent[f"{name} {version}"] = f"its requirements cannot be read: {error}"
                continue
            found[version] = kept[lines, extras]
        return found

    def _said(self, file: IndexFile) -> dict[str, list[str]]:
        """Return what a wheel asks for and which extras it has; the same file cannot say anything else later."""
        kept: dict[str, list[str]] | None = self._reader.keep(file, "said")
        if kept is None and not file.file.endswith(".whl"):
            requires = list(self._reader.contents(file).requires_dist)
            try:
                kept = {"requires": requires, "extras": sorted(extras_of(requires))}
            except InvalidRequirement as error:
                raise UnreachableError(f"the needs of {file.file} cannot be read", because=(str(error),)) from error
            self._reader.keep(file, "said", kept)
        if kept is None:
            text = self._metadata(file).decode("utf-8", "replace").replace("\r\n", "\n")
            message = HeaderParser().parsestr(text.partition("\n\n")[0])
            kept = {
                "requires": [str(value) for value in message.get_all("Requires-Dist", [])],
                "extras": sorted({str(canonicalize_name(value)) for value in message.get_all("Provides-Extra", [])}),
            }
            self._reader.keep(file, "said", kept)
        return kept

    def _metadata(self, file: IndexFile) -> bytes:
        """Return METADATA from beside a wheel, else from its end: some indexes serve it there and do not say so."""
        with suppress(AbsentError):
            content = self._client.get(f"{file.url}.metadata", bytes_max=_METADATA_BYTES_MAX).content
            if file.metadata_sha256 not in (None, hashlib.sha256(content).hexdigest()):
                raise UnreachableError(f"{file.url}.metadata is not the file of its index")
            return content
        with self._reader.open(file, _TAIL_BYTES) as wheel:
            inside = wheel.names(r"[^/]+\.dist-info/METADATA")
            held = wheel.read(inside[0]) if len(inside) == 1 else None
        if held is None:
            raise UnreachableError(f"{file.url} holds no METADATA")
        return held

    def _reduce(self, lines: Sequence[str], extras: Sequence[str], bound: str | None) -> list[list[str]]:
        """Return groups: an extra, empty for none, and what it asks for."""
        # Some old releases say `>=1.9.*`, which installers take for `>=1.9`.
        lines = [re.sub(r"([<>]=?\s*[0-9.]+)\.\*", r"\1", line) for line in lines]
        adjacent = [line for line in lines if self._is_kept(Requirement(line))]
        groups: dict[str, list[str]] = {"": []}
        groups |= {extra: [] for extra in extras}
        for line in adjacent:
            # Some distributions have hundreds of extras, and each line names one or two.
            named = extras_of([line])
            wanted = {extra for extra in named if not any(fnmatchcase(extra, word) for word in self._without)}
            for name, specifier, marker, extra in reduce_requires([line], wanted, bound):
                groups.setdefault(extra, []).append(f"{name}{specifier}{f'; {marker}' if marker else ''}")
        return [[extra, *sorted(set(rows))] for extra, rows in sorted(groups.items())]

    def _is_kept(self, need: Requirement) -> bool:
        if str(canonicalize_name(need.name)) in self._names:
            return True
        return bool(need.specifier) and not extras_of([str(need)])

    def _write(self, name: str, rows: Sequence[Row]) -> None:
        file = published_file(name)
        groups: list[Row] = []
        asks: list[list[str]] = []
        files: list[str] = []
        for row in sorted(rows, key=lambda item: Version(item["version"]), reverse=True):
            head: Row = {key: row[key] for key in ("requires_python",) if key in row}
            if "requires" in row:
                head["requires"] = _runs(_place(asks, group) for group in row["requires"])
            head["files"] = _place(files, row["files"])
            last = groups[-1] if groups else {}
            if {key: value for key, value in last.items() if key not in ("versions", "yanked")} != head or not groups:
                groups.append({"versions": [], **head})
            groups[-1]["versions"].append(row["version"])
            if row["is_yanked"]:
                groups[-1].setdefault("yanked", []).append(row["version"])
        document = self.book.document(file) if self.book.has(file) else self.book.add(file, {"dated": ""})
        before = dict(document)
        document.clear()
        document |= {"schema_version": 1, "package": name, "dated": before["dated"], "source": [_SOURCE]}
        document |= {"scope": self._scope, "requires": asks, "files": files, "releases": groups}
        if document != before:
            self.book.date(file, self._dated)


def _place(shelf: list[Any], item: Any) -> int:
    """Return where a value stands among those that releases share, put there if it is new."""
    if item not in shelf:
        shelf.append(item)
    return shelf.index(item)


def _runs(places: Iterable[int]) -> str:
    """Return places as `places_of` reads them: ``0 4-7``."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _releases_of(page: Page) -> dict[str, list[IndexFile]]:
    """Return version → files; pre-releases only where there is nothing else."""
    found: dict[Version, list[IndexFile]] = {}
    for row in page.files:
        version = version_of(row.file)
        if version is not None:
            # Some files of a release are named by `1.0`, others by `1.0.0`.
            found.setdefault(Version(version), []).append(row)
    final = {version: files for version, files in found.items() if not version.is_prerelease}
    return {str(version): files for version, files in (final or found).items()}


def _spokesman(files: Sequence[IndexFile], *, has_source: bool) -> IndexFile | None:
    """Return the file that speaks for a release: the wheel for Linux on x86-64, another wheel, or else the source."""
    wheels = [file for file in files if file.file.endswith(".whl")]
    if not wheels and has_source:
        return next((file for file in files if file.file.endswith((".tar.gz", ".zip"))), None)
    return max(wheels, key=lambda item: (_is_common(item.file), item.file), default=None)


def _is_common(file: str) -> bool:
    platforms = file.removesuffix(".whl").rpartition("-")[2].split(".")
    return any(item == "any" or ("linux" in item and item.endswith(f"_{MACHINES[0]}")) for item in platforms)


def _is_specifier(text: str) -> bool:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def _coverage(files: Iterable[IndexFile]) -> str:
    """Return in words which Linux CPythons files are for: ``x86_64 3.9 3.10; aarch64 3.9+; sdist``."""
    found: dict[str, set[tuple[int, str]]] = {machine: set() for machine in MACHINES}
    has_source = False
    for file in files:
        if not file.file.endswith(".whl"):
            has_source = True
            continue
        try:
            tags = parse_wheel_filename(file.file)[3]
        except InvalidWheelFilename:
            continue
        for tag in tags:
            word = _python_of(tag.interpreter, tag.abi)
            if word is None:
                continue
            for machine in MACHINES:
                is_linux = tag.platform.startswith(("manylinux", "linux")) and tag.platform.endswith(machine)
                if tag.platform == "any" or is_linux:
                    found[machine].add(word)
    words = {machine: " ".join(f"3.{minor}{end}" for minor, end in sorted(pairs)) for machine, pairs in found.items()}
    parts = [f"{machine} {text}" for machine, text in words.items() if text]
    if len(parts) == len(MACHINES) and len(set(words.values())) == 1:
        parts = [f"any {words[MACHINES[0]]}"]
    return "; ".join([*parts, *(["sdist"] if has_source else [])])


def _python_of(interpreter: str, abi: str) -> tuple[int, str] | None:
    """Return the minor that a tag names, with what follows it: ``+`` for all later ones too, ``t`` for free threads."""
    digits = interpreter[3:]
    if interpreter[:3] not in ("cp3", "py3") or (digits and not digits.isdecimal()):
        return None
    minor = int(digits or 0)
    if abi == "abi3" or (abi == "none" and (interpreter.startswith("py3"))):
        return minor, "+"
    return minor, "t" if abi.endswith("t") else ""
