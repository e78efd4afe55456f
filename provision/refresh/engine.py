"""One refresh: every source is read, compared with the facts and turned into new rows, in memory."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from packaging.version import Version

from provision.errors import DataError, MissingDependencyError, UsageError
from provision.index.address import IndexAddress
from provision.records import NOTHING, record
from provision.refresh import apt, needs, ngc, nvidia, prebuilt, pytorch
from provision.refresh.book import Book, Row
from provision.refresh.client import Client, UnreachableError, each
from provision.refresh.diff import Change, changes_of
from provision.refresh.frameworks import companions, jax, tensorflow, torch
from provision.refresh.frameworks.row import differing
from provision.refresh.guard import Alarms
from provision.refresh.published import Registry
from provision.refresh.wheel import WheelReader
from provision.refresh.wheels import Shelf, wheel_file
from provision.resolve.requirements import normalise_name

_SETTINGS = "refresh.toml"
_TORCH = "frameworks/torch.toml"
_TENSORFLOW = "frameworks/tensorflow.toml"
_DRIVERS = "drivers.toml"
AXES = {
    "torch": "torch, torchvision, torchaudio and triton on the package index",
    "tensorflow": "tensorflow on the package index",
    "jax": "jax, jaxlib and the CUDA plugins on the package index",
    "nvidia": "cuda-toolkit and the component wheels on the package index",
    "companions": "packages built against a framework (vllm, sglang, xformers, …) on the package index",
    "published": "every release of the packages that `check` solves with, on the package index",
    "system": "libraries that compiled files of wheels need of the system, on the package index",
    "drivers": "driver packages in the archives of Debian and Ubuntu",
    "cuda": "toolkits in NVIDIA's manifests",
    "builds": "CUDA builds on the PyTorch index",
    "ngc": "NVIDIA's framework images, in the table of the Triton Inference Server",
    "prebuilt": "wheels that projects publish with their releases on GitHub",
}
"""What can be read, by the word that ``--only`` takes."""
_GROWING = ("pythons", "pythons_with_companions", "platform_tags")
_PARTNERS = ("torchvision", "torchaudio")
_LATE = (*_PARTNERS, "pythons_with_companions", "paired_torch", *companions.CODE, "ptx")
_PATIENCE = 3
"""Pages that do not answer before an index is taken to be out of reach."""
_ON_INDEX = ("torch", "tensorflow", "jax", "nvidia", "companions", "system")
Report = Callable[[str, int, int], None]
"""Called with what is being read, how much of it is done, and how much there is."""


@record
class Plan:
    """What to read, and where.

    Attributes:
        axes: Keys of :data:`AXES`.
        packages: Distributions beside those of the axes, and single releases (``vllm==0.30.0``).
        index: The package index; ``None`` where none is known or needed.
        mirrors: Distribution (``debian``) → root of its archive.
        pytorch_url: Root of the PyTorch index; that of the facts when absent.
        redistrib_url: Folder of the manifests; that of the facts when absent.
        accepted: Alarms that a person has looked at.
        dated: The day of new facts.
        jobs: Threads.
        cache: Folder for what need not be read twice.
    """

    axes: tuple[str, ...]
    packages: tuple[str, ...] = ()
    index: IndexAddress | None = None
    mirrors: Mapping[str, str] = NOTHING
    pytorch_url: str | None = None
    redistrib_url: str | None = None
    accepted: tuple[str, ...] = ()
    dated: datetime.date
    jobs: int = 4
    cache: Path | None = None


@record
class Outcome:
    """What a refresh found.

    Attributes:
        changes: Rows that differ from the facts on disk.
        texts: File → text of all that changed.
        read: Sources that were read whole.
        silent: Source or file that could not be read → why.
        notes: What a person may want to know.
        requests: Requests that were sent.
        received: Bytes that were received.
    """

    changes: tuple[Change, ...]
    texts: Mapping[str, str]
    read: tuple[str, ...]
    silent: Mapping[str, str]
    notes: tuple[str, ...]
    requests: int
    received: int


def read_plan(words: Iterable[str], folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes and the single distributions that ``--only`` names; all axes for no word.

    Raises:
        UsageError: A word is neither.
    """
    axes: list[str] = []
    packages: list[str] = []
    known = {path.stem for path in (folder / "wheels").glob("*.json")}
    companions_: set[str] = set()
    if words := tuple(words):
        companions_ = set((Book(folder).find(_SETTINGS, "setting", id="group_companions") or {}).get("values", ()))
        known |= companions_
    for word in words:
        text, is_release, version = word.strip().partition("==")
        name = normalise_name(text)
        if is_release:
            if name not in companions_ or not version:
                raise UsageError(
                    f"--only: `{word[:60]}` names no release of a companion",
                    hints=(f"write `NAME==VERSION`; companions are what `group_companions` of {_SETTINGS} names",),
                )
            packages.append(f"{name}=={version}")
            continue
        if name in AXES:
            axes.append(name)
        elif name in known:
            packages.append(name)
        elif name in ("debian", "ubuntu"):
            axes.append("drivers")
        else:
            from difflib import get_close_matches

            near = get_close_matches(name, [*AXES, *sorted(known)], n=1)
            raise UsageError(
                f"--only: `{word[:60]}` is neither a source nor a distribution that the facts know",
                hints=(*(f"did you mean `{item}`?" for item in near), f"sources are {', '.join(AXES)}"),
            )
    if not axes and not packages:
        axes = list(AXES)
    return tuple(dict.fromkeys(axes)), tuple(dict.fromkeys(packages))


class Refresh:
    """Reads what a plan names and holds the result; nothing is written here.

    Args:
        folder: The facts.
        plan: What to read.
        client: Who asks.
        report: Told of progress.
    """

    def __init__(self, folder: Path, plan: Plan, client: Client, report: Report | None = None) -> None:
        self._plan = plan
        self._client = client
        self._report = report or (lambda *_: None)
        self.book = Book(folder)
        self.alarms = Alarms(plan.accepted)
        self._read: list[str] = []
        self._silent: dict[str, str] = {}
        self._notes: list[str] = []
        self._shelf: Shelf | None = None

    def run(self) -> Outcome:
        """Read everything.

        Raises:
            MissingDependencyError: Not one source could be read.
            DataError: Upstream contradicts the facts in a way that a person must look at.
        """
        if self._plan.packages or any(axis in self._plan.axes for axis in _ON_INDEX):
            self._read_index()
        if "published" in self._plan.axes:
            self._read_published()
        works = {"drivers": self._drivers, "cuda": self._toolkits, "builds": self._builds}
        works |= {"ngc": self._images, "prebuilt": self._prebuilt}
        for axis, work in works.items():
            if axis in self._plan.axes:
                work()
        if not self._read:
            raise MissingDependencyError(
                "nothing could be read",
                because=[f"{name}: {why}" for name, why in list(self._silent.items())[:12]],
                hints=("see that this machine has a network, or name mirrors: `provision data refresh --help`",),
                details={"silent": dict(self._silent)},
            )
        self._guard_loss()
        self.alarms.stop()
        changes = changes_of(self.book)
        counts = self._client.counts
        notes = [*self._notes, *(f"--accept {text} was not needed" for text in self.alarms.unused)]
        return Outcome(
            changes=changes,
            texts=self.book.texts() if changes else {},
            read=tuple(self._read),
            silent=dict(self._silent),
            notes=tuple(notes),
            requests=counts.requests,
            received=counts.received,
        )

    # the package index

    def _setting(self, name: str) -> Row:
        row = self.book.find(_SETTINGS, "setting", id=name)
        if row is None:
            raise DataError(f"{_SETTINGS}: the setting `{name}` is missing")
        return row

    def _names(self, axis: str) -> list[str]:
        if axis == "system":
            return [row["id"] for row in self.book.rows("system_libraries.toml", "need")]
        names: list[str] = []
        for word in self._setting(f"group_{axis}").get("values", []):
            if word.endswith("*"):
                start = word[:-1]
                names += sorted(path.stem for path in (self.book.folder / "wheels").glob(f"{start}*.json"))
            else:
                names.append(word)
        return list(dict.fromkeys(names))

    def _read_index(self) -> None:
        index = self._plan.index
        axes = [axis for axis in _ON_INDEX if axis in self._plan.axes]
        if index is None:
            for axis in axes or ("packages",):
                self._silent[axis] = "no package index is known"
            return
        reader = WheelReader(self._client, self._plan.cache)
        shelf = Shelf(
            self.book, self._client, index.url, reader, self.alarms, dated=self._plan.dated, jobs=self._plan.jobs
        )
        self._shelf = shelf
        wanted = {axis: self._names(axis) for axis in axes}
        past = [text.split("==") for text in self._plan.packages if "==" in text]
        single = [text for text in self._plan.packages if "==" not in text]
        names = list(
            dict.fromkeys(
                [*(name for group in wanted.values() for name in group), *single, *(name for name, _ in past)]
            )
        )
        if "torch" in axes:
            names = list(dict.fromkeys([*names, *torch.FAMILY]))
        if not self._is_answering(index, names):
            for axis in axes or self._plan.packages:
                self._silent[axis] = f"the package index does not answer: {next(iter(shelf.silent.values()), '')}"
            return
        shelf.read_pages(names, lambda done: self._report("pages", done, len(names)))
        companions_ = set(self._names("companions")) if "companions" in axes else set()
        companions_ |= {name for name in single if not self.book.has(wheel_file(name))}
        apart = companions_ | ({name for name, _ in past} | set(wanted.get("system", ()))) - set(single)
        updated = [name for name in names if shelf.page(name) is not None and name not in apart]
        for number, name in enumerate(updated, 1):
            shelf.update(name)
            self._report("wheels", number, len(updated))
        shelf.close()
        if "torch" in axes and self._has_pages(shelf, torch.FAMILY):
            self._torch(shelf)
        if "tensorflow" in axes and self._has_pages(shelf, tensorflow.FAMILY):
            self._tensorflow(shelf)
        if "jax" in axes and self._has_pages(shelf, jax.FAMILY):
            self._jax(shelf)
        for name in sorted(companions_ | ({"triton"} if "torch" in axes else set())):
            if shelf.page(name) is not None:
                self._companion(shelf, name)
        for name, version in past:
            if shelf.page(name) is not None:
                self._past(shelf, name, version)
        if "system" in axes:
            base = self._setting("system_base")["values"]
            report = partial(self._report, "libraries")
            self._notes += needs.update_needs(self.book, shelf, self.alarms, self._plan.dated, base, report)
        self._silent |= shelf.silent
        self._notes += shelf.notes
        for axis in axes:
            if all(shelf.page(name) is not None for name in wanted[axis]):
                self._read.append(axis)
            elif any(shelf.page(name) is not None for name in wanted[axis]):
                lacking = [name for name in wanted[axis] if shelf.page(name) is None]
                self._read.append(f"{axis} without {', '.join(lacking)}")
        self._read += [text for text in self._plan.packages if shelf.page(text.partition("==")[0]) is not None]

    def _read_published(self) -> None:
        index = self._plan.index
        if index is None:
            self._silent["published"] = "no package index is known"
            return
        names = self._setting("group_published")["values"]
        registry = Registry(
            self.book,
            self._client,
            index.url,
            self.alarms,
            names=names,
            since=self._setting("published_since")["value"],
            whole=self._setting("published_whole")["values"],
            without=self._setting("published_without_extras")["values"],
            dated=self._plan.dated,
            jobs=self._plan.jobs,
            cache=self._plan.cache,
        )
        lacking = []
        for number, name in enumerate(names, 1):
            if not registry.update(name):
                lacking.append(name)
                if number == len(lacking) == _PATIENCE:
                    break
            self._report("releases", number, len(names))
        self._silent |= registry.silent
        if len(lacking) < min(_PATIENCE, len(names)):
            self._read.append("published" + (f" without {', '.join(lacking)}" if lacking else ""))

    def _is_answering(self, index: IndexAddress, names: list[str]) -> bool:
        """Ask for one page before all others: a machine without a network should say so at once."""
        del index
        shelf = self._shelf
        return shelf is not None and any(shelf.read_pages([name]) for name in names[:2])

    def _has_pages(self, shelf: Shelf, names: Iterable[str]) -> bool:
        return all(shelf.page(name) is not None for name in names)

    def _torch(self, shelf: Shelf) -> None:
        known = [row["version"] for row in self.book.rows(_TORCH, "release")]
        newest = max(known, key=Version)
        dated = str(self.book.document(_TORCH)["dated"])
        for version in [*shelf.new_versions("torch", known, dated), newest]:
            rows = torch.rows_of(shelf, version)
            if rows is None:
                self._notes.append(f"torch {version} on the index has no CUDA build for linux/amd64, or cannot be read")
                continue
            release, build = rows
            if version == newest:
                self._compare(_TORCH, "release", {"version": version}, release, torch.MEASURED_RELEASE)
                key = {"torch": version, "variant": build["variant"]}
                self._compare(_TORCH, "build", key, build, torch.MEASURED_BUILD)
                continue
            self.book.insert(_TORCH, "release", release)
            self.book.insert(_TORCH, "build", build)
            self.book.date(_TORCH, self._plan.dated)

    def _tensorflow(self, shelf: Shelf) -> None:
        known = [row["version"] for row in self.book.rows(_TENSORFLOW, "release")]
        newest = max(known, key=Version)
        dated = str(self.book.document(_TENSORFLOW)["dated"])
        for version in [*shelf.new_versions("tensorflow", known, dated), newest]:
            row = tensorflow.rows_of(shelf, version)
            if row is None:
                self._notes.append(f"tensorflow {version} on the index has no CUDA build, or cannot be read")
            elif version == newest:
                self._compare(_TENSORFLOW, "release", {"version": version}, row, tensorflow.MEASURED)
            else:
                self.book.insert(_TENSORFLOW, "release", row)
                self.book.date(_TENSORFLOW, self._plan.dated)

    def _jax(self, shelf: Shelf) -> None:
        known = [row["version"] for row in self.book.rows(jax.FILE, "release")]
        newest = max(known, key=Version)
        dated = str(self.book.document(jax.FILE)["dated"])
        for version in [*shelf.new_versions("jax", known, dated), newest]:
            for row in jax.rows_of(shelf, version):
                if version == newest:
                    key = {"version": version, "variant": row["variant"]}
                    self._compare(jax.FILE, "release", key, row, jax.MEASURED)
                else:
                    self.book.insert(jax.FILE, "release", row)
                    self.book.date(jax.FILE, self._plan.dated)

    def _companion(self, shelf: Shelf, name: str) -> None:
        known = [row["version"] for row in self.book.rows(companions.FILE, "release") if row["package"] == name]
        dated = str(self.book.document(companions.FILE)["dated"])
        newest = [max(known, key=Version)] if known else []
        since = self._setting("companions_since")["value"]
        versions = [*shelf.new_versions(name, known, dated, since), *newest]
        habits = self._habits()

        def read(version: str) -> Row | None:
            # Nearly all of a wheel is fetched for its code: of a package's past only that of the newest release.
            is_code_read = bool(known) or version == versions[0]
            return companions.row_of(shelf, name, version, habits, is_code_read=is_code_read)

        rows = each(read, versions, self._client, self._plan.jobs)
        last: Row | None = None
        for version, row in zip(versions, rows, strict=True):
            if row is None:
                continue
            if version in newest:
                key = {"package": name, "version": version}
                self._compare(companions.FILE, "release", key, row, companions.MEASURED)
            elif known or last is None or not companions.is_same_need(last, row):
                # Of a package that is read for the first time, the newest of those that ask for the same will do.
                last = row
                self.book.insert(companions.FILE, "release", row)
                self.book.date(companions.FILE, self._plan.dated)

    def _past(self, shelf: Shelf, name: str, version: str) -> None:
        """Read one release of a companion: add it, or add what its row does not say of its code for GPUs."""
        row = companions.row_of(shelf, name, version, self._habits())
        if row is None:
            shelf.silent.setdefault(f"{name}=={version}", "the index has no files of it")
            return
        known = self.book.find(companions.FILE, "release", package=name, version=version)
        if known is None:
            self.book.insert(companions.FILE, "release", row)
            self.book.date(companions.FILE, self._plan.dated)
            return
        for field in companions.CODE:
            self._fill(companions.FILE, known, field, row)

    def _habits(self) -> companions.Habits:
        stated = self._setting("companions_paired")
        optional = self._setting("companions_optional_code")["values"]
        return companions.Habits(
            names=frozenset(self._names("companions")),
            extras=self._setting("companions_extras")["entries"],
            stated=stated["entries"],
            stated_in=tuple(stated["source"]),
            sources=self._setting("companions_sources")["entries"],
            kernels=frozenset([*self._setting("companions_kernels")["values"], *optional]),
            optional=frozenset(optional),
        )

    def _compare(self, file: str, array: str, key: dict[str, Any], now: Row, measured: Iterable[str]) -> None:
        """Read the newest known row again; what reads otherwise today is an alarm, not a change."""
        row = self.book.find(file, array, **key)
        label = "+".join(str(value) for value in key.values())
        stem = Path(file).stem
        if row is None:
            self.alarms.raise_(
                "meaning", f"{stem}/{label}", f"{file}: the index now serves {label}, which no row names"
            )
            return
        for field in _LATE:
            # A companion is often published after its torch, and code may be read later than the rest.
            if field in measured:
                self._fill(file, row, field, now)
        for field, before, after in differing(row, now, measured):
            said = f"{file}: {field} of {label} was {_short(before)}, now reads {_short(after)}"
            # A wheel for one more Python may come later, and a newer companion; nothing else of a release should move.
            is_growth = field in _GROWING and isinstance(after, list) and set(before) < set(after)
            is_newer = field in _PARTNERS and after is not None and Version(before) < Version(after)
            if is_growth or is_newer or self.alarms.raise_("meaning", f"{stem}/{label}.{field}", said):
                if after in (None, [], {}):
                    row.pop(field, None)
                    row.get("evidence", {}).pop(field, None)
                else:
                    row[field] = after
                self.book.date(file, self._plan.dated)

    def _fill(self, file: str, row: Row, field: str, now: Row) -> None:
        """Give a row the value of a field that it lacks."""
        if now.get(field) and not row.get(field):
            row[field] = now[field]
            origin = now.get("evidence", {}).get(field)
            if origin is not None:
                row.setdefault("evidence", {})[field] = origin
            self.book.date(file, self._plan.dated)

    # other sources

    def _drivers(self) -> None:
        suites = self._setting("apt_suites")["entries"]
        parts = self._setting("apt_components")["entries"]
        branches = {row["branch"] for row in self.book.rows(_DRIVERS, "branch")}
        asked: list[tuple[str, str, str, list[str]]] = []
        for system, names in suites.items():
            distribution = re.match(r"[a-z]+", system)[0]  # type: ignore[index]
            mirror = self._plan.mirrors.get(distribution)
            if mirror is None:
                self._silent[system] = (
                    f"no archive of {distribution} is known: name one with --apt-mirror {distribution}=URL"
                )
                continue
            asked.append((system, distribution, mirror, names.split()))

        def read(item: tuple[str, str, str, list[str]]) -> dict[tuple[int, str], apt.Driver] | str:
            _, distribution, mirror, names = item
            try:
                return apt.read_drivers(self._client, mirror, names, parts[distribution].split(), distribution)
            except UnreachableError as error:
                return "; ".join((error.message, *error.because))

        results = each(
            read, asked, self._client, self._plan.jobs, lambda done: self._report("archives", done, len(asked))
        )
        for (system, distribution, _, _), found in zip(asked, results, strict=True):
            if isinstance(found, str):
                self._silent[system] = found
                continue
            self._read.append(system)
            self._take_drivers(system, distribution, found, branches)

    def _take_drivers(
        self, system: str, distribution: str, found: Mapping[tuple[int, str], apt.Driver], branches: set[int]
    ) -> None:
        have = {
            (row["branch"], row["flavour"]): row
            for row in self.book.rows(_DRIVERS, "distro_driver")
            if row["os"] == system
        }
        for key in sorted(set(have) - set(found), reverse=True):
            label = f"{system}-{key[0]}-{key[1]}"
            if self.alarms.raise_("fewer", label, f"{system} has no driver package {key[0]} {key[1]} any more"):
                self.book.rows(_DRIVERS, "distro_driver").remove(have[key])
        for key, driver in sorted(found.items(), reverse=True):
            if key[0] not in branches or (driver.transition_to is not None and driver.transition_to not in branches):
                continue
            row = have.get(key)
            now = {"version": driver.version, "component": driver.component, "transition_to": driver.transition_to}
            if row is None:
                origin = {
                    "source": [f"{distribution}-archive"],
                    "where": "Packages",
                    "status": "measured",
                    "confidence": "high",
                }
                head = {"os": system, "branch": key[0], "flavour": key[1]}
                self.book.insert(_DRIVERS, "distro_driver", {**head, **now, **origin})
                continue
            before, after = row.get("version"), driver.version
            if before and after and Version(after) < Version(before):
                said = f"{system} has driver {after} of branch {key[0]} {key[1]}, the facts have {before}"
                if not self.alarms.raise_("older", f"{system}-{key[0]}-{key[1]}", said):
                    continue
            for field, value in now.items():
                row.pop(field, None)
                if value is not None:
                    row[field] = value
        if self.book.document(_DRIVERS) != self.book.before(_DRIVERS):
            self.book.date(_DRIVERS, self._plan.dated)

    def _toolkits(self) -> None:
        url = self._plan.redistrib_url or self._setting("redistrib_folder")["value"]
        try:
            _, notes = nvidia.update_toolkits(self.book, self._client, url, self.alarms, self._plan.dated)
        except UnreachableError as error:
            self._silent["cuda"] = "; ".join((error.message, *error.because))
            return
        self._read.append("cuda")
        self._notes += notes
        self._report("manifests", 1, 1)

    def _builds(self) -> None:
        known = self.book.find(_TORCH, "setting", id="wheel_index") or {}
        url = self._plan.pytorch_url or str(known.get("value", "")).partition("/{")[0]
        names = {row["variant"]: row["cuda"] for row in self.book.rows(_TORCH, "build")}
        try:
            pages = pytorch.read_builds(self._client, url)
            pytorch.update_builds(self.book, pages, self.alarms, self._plan.dated, names)
        except UnreachableError as error:
            self._silent["builds"] = "; ".join((error.message, *error.because))
            return
        self._read.append("builds")
        self._report("PyTorch index", 1, 1)

    def _images(self) -> None:
        url = self._setting("ngc_table")["value"]
        try:
            self._notes += ngc.update_images(self.book, self._client, url, self.alarms, self._plan.dated)
        except UnreachableError as error:
            self._silent["ngc"] = "; ".join((error.message, *error.because))
            return
        self._read.append("ngc")

    def _prebuilt(self) -> None:
        url = self._setting("releases_api")["value"]
        try:
            notes, silent = prebuilt.update_prebuilt(self.book, self._client, url, self.alarms, self._plan.dated)
        except UnreachableError as error:
            self._silent["prebuilt"] = "; ".join((error.message, *error.because))
            return
        self._notes += notes
        self._silent |= silent
        self._read.append("prebuilt" + (f" without {', '.join(silent)}" if silent else ""))

    def _guard_loss(self) -> None:
        """Hold the whole result against the facts once more: no row, no wheel and no field may be gone unasked."""
        for change in changes_of(self.book):
            if change.kind == "removed":
                said = f"{change.file}: the row {change.row} would be gone"
                if change.file == _TORCH and change.array == "unknown_build":
                    continue
                if change.file == _DRIVERS and any(text.startswith("fewer:") for text in self._plan.accepted):
                    continue
                self.alarms.raise_("fewer", f"{change.file}/{change.row}", said)


def _short(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"`{text[:120]}`"
