"""Bring ``wheels/*.json`` up to date: new releases of what is watched, and whatever these need."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from provision.index.page import IndexFile, Page
from provision.refresh.book import Book, Row
from provision.refresh.client import Client, UnreachableError, each
from provision.refresh.guard import Alarms
from provision.refresh.index import read_page
from provision.refresh.requires import extras_of, reduce_requires
from provision.refresh.tags import MACHINES, is_fitting, is_kept, machines_of, pythons_of, version_of
from provision.refresh.wheel import WheelContents, WheelReader

_SOURCES = ("pypi-simple-index", "pypi-wheel-directories")
_EXTRA_STARTS = ("cuda", "and-cuda")
"""Extras that a request can name, whatever number CUDA has then."""
Advance = Callable[[int], None]


def wheel_file(name: str) -> str:
    """Return the fact file of a distribution."""
    return f"wheels/{name}.json"


class Shelf:
    """What an index offers beside what the facts have.

    Args:
        book: The facts, edited in place.
        client: Who asks.
        index_url: Root of the index.
        reader: Reads wheels.
        alarms: Takes what must stop the refresh.
        dated: The day of new facts.
        jobs: Threads.

    Attributes:
        added: Distribution → releases that were added.
        extended: Distribution → known releases that got more wheels.
        silent: What could not be read → why.
        notes: What a person may want to know.
    """

    def __init__(
        self,
        book: Book,
        client: Client,
        index_url: str,
        reader: WheelReader,
        alarms: Alarms,
        *,
        dated: datetime.date,
        jobs: int = 4,
    ) -> None:
        self.book = book
        self.reader = reader
        self.alarms = alarms
        self.dated = dated
        self._client = client
        self._index_url = index_url
        self._jobs = jobs
        self._pages: dict[str, Page] = {}
        self._releases: dict[str, dict[str, list[IndexFile]]] = {}
        self.added: dict[str, list[str]] = {}
        self.extended: dict[str, list[str]] = {}
        self.silent: dict[str, str] = {}
        self.notes: list[str] = []

    # pages

    def read_pages(self, names: Iterable[str], advance: Advance | None = None) -> list[str]:
        """Read project pages, several at a time; return those that could be read.

        A page that cannot be read is noted in :attr:`silent` and changes nothing.
        """
        wanted = [name for name in dict.fromkeys(names) if name not in self._pages and name not in self.silent]

        def read(name: str) -> tuple[str, Page | None, str]:
            try:
                return name, read_page(self._client, self._index_url, name), ""
            except UnreachableError as error:
                return name, None, "; ".join((error.message, *error.because))

        for name, page, why in each(read, wanted, self._client, self._jobs, advance):
            if page is None:
                self.silent[name] = why
            else:
                self._take(name, page)
        return [name for name in dict.fromkeys(names) if name in self._pages]

    def _take(self, name: str, page: Page) -> None:
        for column in page.unseen:
            self.alarms.raise_("unseen", f"{name}.{column}", f"the page of {name} has a column `{column}`")
        self._pages[name] = page
        releases: dict[str, list[IndexFile]] = {}
        sources: dict[str, IndexFile] = {}
        for row in page.files:
            version = version_of(row.file)
            if version is None:
                continue
            if is_kept(row.file):
                releases.setdefault(version, []).append(row)
            elif not row.file.endswith(".whl"):
                sources.setdefault(version, row)
        bare = {version: [row] for version, row in sources.items() if version not in releases}
        self._releases[name] = {**releases, **bare}

    def page(self, name: str) -> Page | None:
        """Return a page that was read."""
        return self._pages.get(name)

    def releases(self, name: str) -> dict[str, list[IndexFile]]:
        """Return version → Linux wheels, or the source distribution of a version without any."""
        return self._releases.get(name, {})

    def files(self, name: str, version: str) -> list[IndexFile]:
        """Return the files of one release."""
        return self.releases(name).get(version, [])

    def new_versions(self, name: str, known: Iterable[str], dated: str, since: str = "") -> list[str]:
        """Return the final releases that the facts lack and should have, newest first.

        They are newer than the newest that is known, or came after the facts were last read. Releases that were
        withdrawn are not taken, and of a distribution that is read for the first time none from before ``since``.
        """
        have = {Version(text.partition("+")[0]) for text in known}
        newest = max(have, default=None)
        found = []
        for text, files in self.releases(name).items():
            version = Version(text)
            is_late = any((row.uploaded or "")[:10] >= dated for row in files)
            if version in have or version.is_prerelease or version.is_devrelease:
                continue
            if all(row.is_yanked for row in files):
                continue
            is_wanted = version > newest if newest is not None else (files[0].uploaded or since)[:10] >= since
            if is_wanted or is_late:
                found.append(version)
        return [str(version) for version in sorted(found, reverse=True)]

    # wheel files

    def update(self, name: str) -> None:
        """Compare one wheel file with its page and add what is new; its page has been read."""
        file = wheel_file(name)
        document = self._document(name)
        dated = str(document.get("dated", ""))
        known = [row for row in document["releases"] if row["index"] == "pypi"]
        for row in known:
            self._compare(name, row)
        for version in self.new_versions(name, [row["version"] for row in document["releases"]], dated):
            files = self.files(name, version)
            if files and files[0].file.endswith(".whl"):
                self.add_release(name, version)
        self._recheck(name, known)
        if file in self.book.changed():
            self.book.date(file, self.dated)

    def _document(self, name: str) -> Row:
        file = wheel_file(name)
        if self.book.has(file):
            return self.book.document(file)
        empty = {"schema_version": 1, "package": name, "dated": "", "source": list(_SOURCES), "releases": []}
        return self.book.add(file, empty)

    def _compare(self, name: str, release: Row) -> None:
        """Look for a known release on the page: what is missing, what differs, which wheels are new."""
        page = self._pages[name]
        by_name = {row.file: row for row in page.files}
        label = f"{name}-{release['version']}"
        for wheel in list(release["wheels"]):
            now = by_name.get(wheel["file"])
            if now is None:
                if self.alarms.raise_("fewer", wheel["file"], f"{wheel['file']} is no longer on the index"):
                    release["wheels"].remove(wheel)
                continue
            self._compare_wheel(wheel, now)
        files = [by_name[wheel["file"]] for wheel in release["wheels"] if wheel["file"] in by_name]
        if not files:
            return
        if any(row.uploaded for row in files):
            for wheel, row in zip(release["wheels"], files, strict=False):
                if wheel["file"] == row.file and wheel.get("uploaded") and row.uploaded:
                    self._compare_moment(wheel, row)
        bound, before = _bound_of(files), release.get("requires_python")
        if _clauses(bound) != _clauses(before) and self.alarms.raise_(
            "requires",
            label,
            f"{name} {release['version']} now asks for Python `{bound or 'any'}`, not `{before or 'any'}`",
        ):
            release["requires_python"] = bound
        is_yanked = all(row.is_yanked for row in files)
        if is_yanked != bool(release.get("yanked")):
            said = "was withdrawn from the index" if is_yanked else "is no longer withdrawn"
            if self.alarms.raise_("yanked", label, f"{name} {release['version']} {said}"):
                release.pop("yanked", None)
                if is_yanked:
                    release["yanked"] = True
        have = {wheel["file"] for wheel in release["wheels"]}
        more = [
            row for row in self.files(name, release["version"]) if row.file not in have and row.file.endswith(".whl")
        ]
        if more and release["wheels"][0]["file"].endswith(".whl"):
            self._extend(name, release, more)

    def _compare_wheel(self, wheel: Row, now: IndexFile) -> None:
        if wheel.get("sha256") and now.sha256 is None:
            self.alarms.raise_("fewer", wheel["file"], f"the index gives no hash for {wheel['file']} any more")
            return
        if wheel.get("sha256") != now.sha256 and self.alarms.raise_(
            "hash",
            wheel["file"],
            f"{wheel['file']} had the hash {str(wheel.get('sha256'))[:12]}…, now {str(now.sha256)[:12]}…",
        ):
            wheel["sha256"] = now.sha256
            if now.size is not None:
                wheel["size"] = now.size
            wheel.pop("installed", None)
        elif now.size is not None and wheel.get("size") not in (None, now.size):
            self.alarms.raise_("hash", wheel["file"], f"{wheel['file']} had {wheel['size']} bytes, now {now.size}")

    def _compare_moment(self, wheel: Row, now: IndexFile) -> None:
        if wheel["uploaded"] != now.uploaded and self.alarms.raise_(
            "meaning", wheel["file"], f"{wheel['file']} was uploaded {wheel['uploaded']}, now {now.uploaded}"
        ):
            wheel["uploaded"] = now.uploaded

    def _extend(self, name: str, release: Row, more: Sequence[IndexFile]) -> None:
        contents = self._measure(more)
        if contents is None:
            return
        release["wheels"] = sorted(
            [*release["wheels"], *(_wheel(row, contents.get(row.file)) for row in more)],
            key=lambda wheel: wheel["file"],
        )
        self.extended.setdefault(name, []).append(release["version"])

    def add_release(self, name: str, version: str) -> Row | None:
        """Add one release with all its Linux wheels, measured; ``None`` where its wheels cannot be read."""
        document = self._document(name)
        files = self.files(name, version)
        for row in files:
            if row.sha256 is None:
                self.silent[f"{name} {version}"] = f"the index gives no hash for {row.file}"
                return None
        contents = self._measure(files)
        if contents is None:
            return None
        release: Row = {"version": version, "index": "pypi"}
        bound = _bound_of(files)
        if bound:
            release["requires_python"] = bound
        try:
            requires = _merged_requires(contents, self._extras(document, contents))
        except (InvalidSpecifier, ValueError) as error:
            self.silent[f"{name} {version}"] = f"its requirements cannot be read: {error}"
            return None
        if requires:
            release["requires"] = requires
        release["wheels"] = [_wheel(row, contents.get(row.file)) for row in sorted(files, key=lambda row: row.file)]
        if all(row.is_yanked for row in files):
            release["yanked"] = True
        rows = document["releases"]
        place = next((at for at, row in enumerate(rows) if Version(row["version"]) < Version(version)), len(rows))
        rows.insert(place, release)
        for source in _SOURCES:
            if source not in document["source"]:
                document["source"].append(source)
        self.book.date(wheel_file(name), self.dated)
        self.added.setdefault(name, []).append(version)
        return release

    @staticmethod
    def _extras(document: Row, contents: dict[str, WheelContents]) -> set[str]:
        """Return the extras whose requirements are kept: those kept so far, and those that a request can name."""
        known = {row[3] for release in document["releases"] for row in release.get("requires", ())} - {""}
        offered = {extra for wheel in contents.values() for extra in extras_of(wheel.requires_dist)}
        wanted = {extra for extra in offered if extra.startswith(_EXTRA_STARTS) or extra == "with-cuda"}
        is_metapackage = document["package"] == "cuda-toolkit"
        return known | wanted | (offered if is_metapackage and not known else set())

    def _measure(self, files: Sequence[IndexFile]) -> dict[str, WheelContents] | None:
        """Read what wheels say of themselves; ``None``, with a word in :attr:`silent`, where one cannot be read."""

        def read(row: IndexFile) -> tuple[IndexFile, WheelContents | None, str]:
            try:
                return row, self.reader.contents(row), ""
            except UnreachableError as error:
                return row, None, "; ".join((error.message, *error.because))

        found = {}
        for row, contents, why in each(read, files, self._client, self._jobs):
            if contents is None:
                self.silent[row.file] = why
                return None
            found[row.file] = contents
        return found

    def _recheck(self, name: str, known: Sequence[Row]) -> None:
        """Read the newest known release again: the same wheel must still say the same."""
        for release in known[:1]:
            by_name = {row.file: row for row in self.files(name, release["version"])}
            if any(alarm.name.startswith(f"{name.replace('-', '_')}-") for alarm in self.alarms.raised):
                return
            contents = {}
            for wheel in release["wheels"]:
                row = by_name.get(wheel["file"])
                if row is None or not row.file.endswith(".whl"):
                    continue
                if len(release["wheels"]) > _FEW_WHEELS and not _is_spokesman(row.file, by_name):
                    continue
                try:
                    requires, bound = self.reader.metadata(row)
                except UnreachableError as error:
                    self.silent[row.file] = "; ".join((error.message, *error.because))
                    return
                contents[row.file] = WheelContents(size=row.size or 0, requires_dist=requires, requires_python=bound)
            if not contents:
                continue
            now = _merged_requires(contents, self._extras({"package": name, "releases": [release]}, {}))
            before = release.get("requires", [])
            if _unordered(now) != _unordered(before):
                label = f"{name}-{release['version']}"
                lost = sorted(_unordered(before) - _unordered(now))
                gained = sorted(_unordered(now) - _unordered(before))
                said = f"{name} {release['version']} says other requirements: {_words(gained, lost)}"
                if self.alarms.raise_("requires", label, said):
                    release["requires"] = now

    # what new releases need

    def close(self, advance: Advance | None = None) -> None:
        """Add, for every release that is new, what it needs and the facts lack, and what that needs in turn."""
        done: set[tuple[str, str]] = set()
        while True:
            todo = [
                (name, version)
                for table in (self.added, self.extended)
                for name, versions in table.items()
                for version in versions
                if (name, version) not in done
            ]
            if not todo:
                return
            for name, version in todo:
                done.add((name, version))
                self._close_one(name, version, advance)

    def _close_one(self, name: str, version: str, advance: Advance | None) -> None:
        release = next(row for row in self._document(name)["releases"] if row["version"] == version)
        lacking: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for python, machine in _places(release, self.files(name, version)):
            place = {"python_version": python.rstrip("t"), "python_full_version": f"{python.rstrip('t')}.9"}
            place["platform_machine"] = machine
            for target, bound, marker, _ in release.get("requires", ()):
                if marker and not Marker(marker).evaluate({**place}):
                    continue
                bare = str(canonicalize_name(Requirement(target).name))
                if not self._has(bare, bound, python, machine):
                    lacking.setdefault((bare, bound), set()).add((python, machine))
        self.read_pages(sorted({bare for bare, _ in lacking}), advance)
        for (bare, bound), places in sorted(lacking.items()):
            for python, machine in sorted(places):
                if self._has(bare, bound, python, machine):
                    continue
                found = self._newest(bare, bound, python, machine)
                if found is None or self.add_release(bare, found) is None:
                    self.notes.append(
                        f"{name} {version} asks for {bare}{bound}, of which nothing fits Python {python} on {machine}"
                    )

    def _has(self, name: str, bound: str, python: str, machine: str) -> bool:
        if not self.book.has(wheel_file(name)):
            return False
        wanted = SpecifierSet(bound)
        return any(
            wanted.contains(row["version"].partition("+")[0], prereleases=True)
            and is_fitting(_files_of(row), python, machine)
            for row in self._document(name)["releases"]
        )

    def _newest(self, name: str, bound: str, python: str, machine: str) -> str | None:
        wanted = SpecifierSet(bound)
        have = (
            {row["version"] for row in self._document(name)["releases"]} if self.book.has(wheel_file(name)) else set()
        )
        for version in sorted(self.releases(name), key=Version, reverse=True):
            files = self.files(name, version)
            if version in have or not wanted.contains(version, prereleases=bool(wanted.prereleases)):
                continue
            if any(row.is_yanked for row in files) and f"=={version}" != bound:
                continue
            if files[0].file.endswith(".whl") and is_fitting(files, python, machine):
                return version
        return None


_FEW_WHEELS = 4


def _is_spokesman(file: str, files: Iterable[str]) -> bool:
    """Tell whether a wheel is the one of its machine that speaks for the release: that of the newest Python."""
    return any(
        file == max((other for other in files if machine in machines_of(other)), key=_python_rank, default=None)
        for machine in machines_of(file)
    )


def _places(release: Row, files: Sequence[IndexFile]) -> list[tuple[str, str]]:
    """Return the Pythons and machines that a release names; one without compiled code names none."""
    names = [wheel["file"] for wheel in release["wheels"]]
    found = [(python, machine) for machine in MACHINES for python in pythons_of(names, machine)]
    if found:
        return found
    minors = sorted(
        {
            f"3.{minor}"
            for minor in range(8, 40)
            if any(is_fitting([row], f"3.{minor}", m) for row in files for m in MACHINES)
        },
        key=Version,
    )
    machines = sorted({machine for name in names for machine in machines_of(name)})
    # One Python stands for all: what has no compiled code needs the same everywhere.
    return [(python, machine) for machine in machines for python in minors[:1]]


def _files_of(release: Row) -> list[IndexFile]:
    return [
        IndexFile(file=wheel["file"], url="", requires_python=release.get("requires_python"))
        for wheel in release["wheels"]
    ]


def _wheel(row: IndexFile, known: WheelContents | None) -> Row:
    wheel = {
        "file": row.file,
        "sha256": row.sha256,
        "size": known.size if known else row.size,
        "installed": known.installed if known else None,
        "uploaded": row.uploaded,
    }
    return {key: value for key, value in wheel.items() if value is not None}


def _bound_of(files: Iterable[IndexFile]) -> str | None:
    bounds = sorted({row.requires_python for row in files if row.requires_python})
    return ",".join(part.strip() for part in bounds[0].split(",")) if bounds else None


def _clauses(bound: str | None) -> set[str]:
    return {part.strip().replace(" ", "") for part in (bound or "").split(",") if part.strip()}


def _unordered(rows: Iterable[Sequence[str]]) -> set[tuple[str, ...]]:
    return {(name, ",".join(sorted(_clauses(bound))), marker, extra) for name, bound, marker, extra in rows}


def _words(gained: Sequence[tuple[str, ...]], lost: Sequence[tuple[str, ...]]) -> str:
    said = [f"+{row[0]}{row[1]}" for row in gained[:3]] + [f"-{row[0]}{row[1]}" for row in lost[:3]]
    rest = len(gained) + len(lost) - len(said)
    return ", ".join(said) + (f" and {rest} more" if rest > 0 else "")


def _merged_requires(contents: dict[str, WheelContents], extras: set[str]) -> list[list[str]]:
    """Return the requirements of a release.

    Wheels of one release can disagree (an aarch64 wheel built without CUDA, a Python added later). A row that is
    in all wheels of one machine only is bound to that machine; otherwise the newest Python's wheel speaks.
    """
    spoken: dict[str, list[list[str]]] = {}
    for file in sorted(contents, key=_python_rank):
        wheel = contents[file]
        rows = reduce_requires(wheel.requires_dist, extras, wheel.requires_python)
        for machine in machines_of(file):
            spoken[machine] = rows
    sets = list(spoken.values())
    if len(sets) < 2 or sets[0] == sets[1]:
        return sets[0] if sets else []
    merged: list[list[str]] = []
    for machine, rows in spoken.items():
        other = next(value for key, value in spoken.items() if key != machine)
        for name, bound, marker, extra in rows:
            row = [name, bound, marker, extra]
            if row not in other and "platform_machine" not in marker:
                only = f'platform_machine == "{machine}"'
                joined = f"({marker}) and {only}" if " or " in marker else f"{marker} and {only}" if marker else only
                row = [name, bound, joined, extra]
            if row not in merged:
                merged.append(row)
    return merged


def _python_rank(file: str) -> tuple[int, str]:
    if not file.endswith(".whl"):
        return 0, file
    interpreter = file.split("-")[-3].split(".")[0]
    digits = "".join(letter for letter in interpreter[3:] if letter in "0123456789")
    return int(digits[:9] or 0), file
