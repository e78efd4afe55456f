"""Rewrite ``compat/wheels/``: the distributions that environments of the frameworks in ``compat/`` are made of.

Each row of ``frameworks/*.toml`` that an index can serve becomes one environment per Python and machine. uv solves
it; what any environment chose is the universe. For every release in it the file keeps the Linux wheels, their
hashes, sizes and unpacked sizes, and the requirements that matter on Linux. Solutions and wheel directories are
kept under ``--cache``, so that a run that was cut short goes on where it stopped.

Rows of other indexes than PyPI are not read here and stay as they are.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pip_index import IndexFile, PipIndex, WheelContents
from wheel_requires import reduce_requires

from provision.errors import ActionFailedError, DriftError, MissingDependencyError, ProvisionError
from provision.matrix.canonical import encode_json
from provision.matrix.load import Matrix
from provision.versions import Spec

COMPAT = Path(__file__).resolve().parent.parent / "compat"
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
SOLVER_GLIBC = "manylinux_2_28"
GLIBC_MINORS = range(40, 4, -1)
LAST_PATCH = {"3.6": "3.6.15", "3.7": "3.7.17"}
"""Pythons whose releases ask for a later patch than ``.0``, which is what uv takes a bare minor for."""
LEGACY_POLICIES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
SOURCE = ["pypi-simple-index", "pypi-wheel-directories"]
ROOT_EXTRAS = {"tensorflow": {"and-cuda"}, "jax": {"cuda12", "cuda12-pip", "cuda13", "cuda12-local", "cuda13-local"}}
"""Extras a request can name; extras that requirements name are found on the way."""
SECOND_TRIES = 4
"""How often a solve is repeated with a yanked pin named or a package allowed as source distribution."""
MEASURED_WHOLE = ("torch", "nvidia-")
"""Starts of names of which every wheel is measured, chosen by an environment or not."""
ALWAYS = ("numpy<2", "numpy", "packaging", "setuptools<82", "setuptools", "wheel", "pip", "uv", "pillow")
"""Requirements that images add by themselves, solved alone for every Python."""


@dataclass(frozen=True, slots=True, order=True)
class Environment:
    """One thing to solve. ``python`` may end in ``t``; ``machine`` is ``x86_64`` or ``aarch64``.

    ``bounds`` hold for packages that are there anyway. ``fallback`` is solved when ``requirements`` has no solution:
    the framework without its companions.
    """

    requirements: tuple[str, ...]
    python: str
    machine: str
    bounds: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()


@dataclass(slots=True)
class Universe:
    """What the environments chose: versions by name, and the wheels to be measured."""

    versions: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    chosen: set[tuple[str, str, str, str]] = field(default_factory=set)
    unsolved: dict[Environment, str] = field(default_factory=dict)

    def add(self, name: str, version: str, environment: Environment) -> None:
        """Note that an environment holds a version."""
        self.versions[name].add(version)
        self.chosen.add((name, version, environment.python, environment.machine))


def environments_of(matrix: Matrix) -> list[Environment]:
    """Return every environment that the framework rows promise and PyPI can serve."""
    found: set[Environment] = set()
    for build in matrix.torch_builds:
        release = next(row for row in matrix.torch_releases if row.version == build.torch)
        companions = tuple(
            f"{name}=={version}"
            for name, version in (("torchvision", release.torchvision), ("torchaudio", release.torchaudio))
            if version
        )
        for machine, index in (("x86_64", build.index), ("aarch64", build.arm64_index)):
            for python in build.pythons if index == "pypi" else ():
                needs, bounds = _hidden(matrix, "torch", build.torch, build.variant, python)
                alone = (f"torch=={build.torch}", *needs)
                found.add(Environment((*alone, *companions), python, machine, bounds, alone))
    found |= set(_of_other_indexes(matrix))
    for row in matrix.tensorflow:
        extra = "[and-cuda]" if row.has_cuda_extra else ""
        pins = tuple(f"{name}{bound}" for name, bound in (row.pins or {}).items())
        for python in row.pythons:
            needs, bounds = _hidden(matrix, "tensorflow", row.version, None, python)
            # The extra of 2.15.0 also asks for a TensorRT that PyPI has no wheel of; its CUDA pins stand alone.
            alone = (f"tensorflow=={row.version}", *needs, *pins)
            found.add(
                Environment(
                    (f"tensorflow{extra}=={row.version}", *needs), python, "x86_64", bounds, alone if pins else ()
                )
            )
    for jax in matrix.jax:
        if jax.delivery == "plugin" and jax.extra:
            for python in jax.pythons:
                needs, bounds = _hidden(matrix, "jax", jax.version, jax.variant, python)
                for machine in ("x86_64", "aarch64") if jax.is_arm64_published else ("x86_64",):
                    found.add(Environment((f"jax[{jax.extra}]=={jax.version}", *needs), python, machine, bounds))
        if jax.delivery == "legacy":
            # The index of these jaxlib builds is read by no tool; the pure-Python half and its needs are on PyPI.
            for python in jax.pythons:
                needs, bounds = _hidden(matrix, "jax", jax.version, jax.variant, python)
                _, more = _hidden(matrix, "jaxlib", jax.jaxlib or jax.version, jax.variant, python)
                libraries = tuple(f"{name}{bound}" for name, bound in (jax.pins or {}).items())
                alone = (f"jax=={jax.version}", *needs, *libraries)
                found.add(Environment(alone, python, "x86_64", (*bounds, *more)))
    return sorted(found | set(_always(found)))


def _of_other_indexes(matrix: Matrix) -> Iterable[Environment]:
    """Return what torch of another index than PyPI needs, one environment per wheel: its needs come from PyPI."""
    package = matrix.package("torch")
    for version in package.versions if package else ():
        release = package.release(version) if package else None
        if release is None or release.index == "pypi":
            continue
        public, _, variant = version.partition("+")
        for wheel in release.wheels:
            tag = max(parse_wheel_filename(wheel.file)[3], key=str)
            minor = tag.interpreter.removeprefix("cp3")
            python = f"3.{minor}{'t' if tag.abi.endswith('t') else ''}"
            needs, bounds = _hidden(matrix, "torch", public, variant, python)
            rows = [f"{name}{bound}{f' ; {marker}' if marker else ''}" for name, bound, marker, _ in release.requires]
            machine = next(machine for machine in MACHINES.values() if tag.platform.endswith(machine))
            yield Environment((*rows, *needs), python, machine, bounds)


def _hidden(
    matrix: Matrix, package: str, version: str, variant: str | None, python: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the undeclared needs of a version: what to add, and what to bound if it is there."""
    added: list[str] = []
    bounds: list[str] = []
    for row in matrix.constraints:
        if row.package != package or version not in Spec(row.versions):
            continue
        is_elsewhere = bool(row.pythons) and python.rstrip("t") not in Spec(row.pythons or "")
        if is_elsewhere or (row.variants and variant not in row.variants):
            continue
        for name, bound in row.requires.items():
            bounds.append(f"{name}{bound}")
            if row.kind == "add":
                added.append(f"{name}{bound}")
    return tuple(added), tuple(bound for bound in bounds if bound not in added)


def _always(environments: Iterable[Environment]) -> Iterable[Environment]:
    places = {(environment.python.rstrip("t"), environment.machine) for environment in environments}
    return (Environment((need,), python, machine) for python, machine in places for need in ALWAYS)


class Solver:
    """uv, asked for one environment at a time; answers are kept on disk.

    Args:
        cache: Folder for answers, one per day because the index moves.
        index_url: The index pip uses, so that both read the same one.
    """

    def __init__(self, cache: Path, index_url: str) -> None:
        beside = Path(sys.executable).with_name("uv")
        program = str(beside) if beside.is_file() else shutil.which("uv")
        if program is None:
            raise MissingDependencyError("uv is not installed", hints=("run `pip install uv`",))
        self._program = program
        self._cache = cache
        self._environ = {**os.environ, "UV_DEFAULT_INDEX": index_url}

    def solve(self, environment: Environment, requirements: tuple[str, ...]) -> tuple[dict[str, str], str]:
        """Return name → version and, when there is no solution, uv's reason.

        Args:
            environment: Where to install. The ``t`` of its Python is dropped: uv knows no free-threaded target,
                and the pins are the same.
            requirements: What to install.
        """
        versions, reason = self._ask(environment, requirements, ())
        sources: tuple[str, ...] = ()
        for _ in range(SECOND_TRIES):
            blocked = re.findall(
                r"Because ([a-z0-9-]+)(?:\[[^]]*\])?==(\S+) (?:was yanked|has no usable wheels)", reason
            )
            blocked += re.findall(r"Because ([a-z0-9-]+)[<>]\S+ has no usable (wheels)", reason)
            if not blocked:
                break
            name, version = blocked[0]
            if "was yanked" in reason:
                requirements = (*requirements, f"{name}=={version}")
            elif name in sources:
                break
            else:
                sources = (*sources, name)
            versions, reason = self._ask(environment, requirements, sources)
        return versions, reason

    def _ask(
        self, environment: Environment, requirements: tuple[str, ...], sources: tuple[str, ...]
    ) -> tuple[dict[str, str], str]:
        """Run uv once; ``sources`` may come as source distributions, whose metadata uv builds."""
        python, machine, bounds = environment.python.rstrip("t"), environment.machine, environment.bounds
        question = json.dumps([requirements, python, machine, *filter(None, (bounds, sources))])
        answer = self._cache / f"{hashlib.sha256(question.encode()).hexdigest()[:24]}.json"
        if not answer.exists():
            target = LAST_PATCH.get(python, python)
            limits = self._cache / f"{hashlib.sha256(repr(bounds).encode()).hexdigest()[:24]}.txt"
            write(limits, "\n".join(bounds))
            done = subprocess.run(
                [self._program, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
                # Naming an interpreter saves uv its search for one of the wanted minor, which takes seconds.
                + [
                    "--python",
                    sys.executable,
                    "--python-version",
                    target,
                    "--python-platform",
                    f"{machine}-{SOLVER_GLIBC}",
                ]
                + [option for name in sources for option in ("--no-binary", name)]
                + ["--constraint", str(limits), "-"],
                input="\n".join(requirements),
                capture_output=True,
                text=True,
                env=self._environ,
                check=False,
            )
            if done.returncode not in (0, 1):
                raise ActionFailedError("uv stopped", because=tuple(done.stderr.strip().splitlines()[-3:]))
            pins = (
                [Requirement(line) for line in done.stdout.splitlines() if "==" in line] if not done.returncode else []
            )
            versions = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
            reason = "" if versions else " ".join(done.stderr.split())
            if "Failed to fetch" in reason or "error sending request" in reason:
                raise ActionFailedError("the index did not answer uv", because=(reason[:300],))
            write(answer, json.dumps({"question": question, "versions": versions, "reason": reason}))
        document = json.loads(answer.read_text(encoding="utf-8"))
        return document["versions"], document["reason"]


def solve_all(environments: Sequence[Environment], solver: Solver, jobs: int) -> Universe:
    """Solve every environment; those without a solution are listed, not dropped in silence."""
    universe = Universe()
    lock = threading.Lock()

    def solve(environment: Environment) -> None:
        versions, reason = solver.solve(environment, environment.requirements)
        if reason and environment.fallback:
            versions, reason = solver.solve(environment, environment.fallback)
        with lock:
            if reason:
                universe.unsolved[environment] = reason
            for name, version in versions.items():
                universe.add(name, version, environment)

    run(solve, environments, jobs, "solved")
    return universe


@lru_cache(maxsize=None)
def tags_of(python: str, machine: str) -> dict[Tag, int]:
    """Return the tags of a Linux CPython with their rank, best first."""
    minor = int(python.rstrip("t").split(".")[1])
    platforms = []
    for glibc in GLIBC_MINORS:
        platforms.append(f"manylinux_2_{glibc}_{machine}")
        if glibc in LEGACY_POLICIES:
            platforms.append(f"{LEGACY_POLICIES[glibc]}_{machine}")
    platforms.append(f"linux_{machine}")
    abi = f"cp3{minor}{'t' if python.endswith('t') else 'm' if minor < 8 else ''}"
    ordered = [
        *cpython_tags((3, minor), abis=[abi], platforms=platforms),
        *compatible_tags((3, minor), interpreter=f"cp3{minor}", platforms=platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def is_kept(file: str) -> bool:
    """Tell whether a file is a wheel for some Linux CPython ≥ 3.6 on a known machine."""
    try:
        tags = parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return False
    return any(_is_python(tag.interpreter) and _is_platform(tag.platform) for tag in tags)


def _is_python(interpreter: str) -> bool:
    return interpreter.startswith(("py3", "cp3"))


def _is_platform(platform: str) -> bool:
    return platform == "any" or (
        platform.startswith(("manylinux", "linux")) and platform.endswith(tuple(MACHINES.values()))
    )


def source_version(file: str) -> str | None:
    """Return the version of a source distribution, the PEP 440 way; ``None`` for other files."""
    try:
        return str(parse_sdist_filename(file)[1])
    except InvalidSdistFilename:
        return None


def best_file(files: Iterable[IndexFile], python: str, machine: str) -> IndexFile | None:
    """Return the file an installer takes: best tag, then highest build number; sources where nothing else is."""
    rank = tags_of(python, machine)
    rows = list(files)
    if rows and not rows[0].file.endswith(".whl"):
        return rows[0]
    ranked = [
        (min((rank[tag] for tag in parse_wheel_filename(row.file)[3] if tag in rank), default=None), row)
        for row in rows
    ]
    fitting = [(place, row) for place, row in ranked if place is not None]
    if not fitting:
        return None
    best = min(place for place, _ in fitting)
    return max(
        (row for place, row in fitting if place == best), key=lambda row: (parse_wheel_filename(row.file)[2], row.file)
    )


class Pages:
    """Project pages: the kept wheels by version, or the one source distribution of a version without any."""

    def __init__(self, index: PipIndex, cache: Path) -> None:
        self._index = index
        self._cache = cache
        self._releases: dict[str, dict[str, list[IndexFile]]] = {}

    def read(self, name: str) -> dict[str, list[IndexFile]]:
        """Return version → files; versions are spelled the PEP 440 way."""
        if name not in self._releases:
            path = self._cache / f"{name}.json"
            if not path.exists():
                write(path, json.dumps([asdict(row) for row in self._index.read_project(name)]))
            releases: dict[str, list[IndexFile]] = defaultdict(list)
            sources: dict[str, IndexFile] = {}
            for row in json.loads(path.read_text(encoding="utf-8")):
                if is_kept(row["file"]):
                    releases[str(parse_wheel_filename(row["file"])[1])].append(IndexFile(**row))
                elif version := source_version(row["file"]):
                    sources.setdefault(version, IndexFile(**row))
            bare = {version: [row] for version, row in sources.items() if version not in releases}
            self._releases[name] = {**releases, **bare}
        return self._releases[name]


def add_fitting(universe: Universe, pages: Pages) -> None:
    """Add the newest release that fits where what uv chose does not.

    uv solved free-threaded Pythons as the plain minor, and it takes no notice of upper bounds in Requires-Python.
    """
    for name, version, python, machine in sorted(universe.chosen):
        releases = pages.read(name)
        if releases.get(version) and not _fits(releases[version], python, machine):
            for other in sorted(releases, key=Version, reverse=True):
                is_wheel = releases[other][0].file.endswith(".whl")
                if is_wheel and not Version(other).is_prerelease and _fits(releases[other], python, machine):
                    universe.add(name, other, Environment((), python, machine))
                    break


def _fits(files: Iterable[IndexFile], python: str, machine: str) -> bool:
    row = best_file(files, python, machine)
    patch = LAST_PATCH.get(python, f"{python.rstrip('t')}.9")
    return row is not None and patch in Spec(row.requires_python or "")


def wheels_to_measure(universe: Universe, pages: Pages) -> dict[str, tuple[str, IndexFile]]:
    """Return file → (name, row) of the wheels the environments install, and one wheel of every release."""
    wanted: dict[str, tuple[str, IndexFile]] = {}
    for name, version, python, machine in universe.chosen:
        row = best_file(pages.read(name).get(version, ()), python, machine)
        if row is not None:
            wanted[row.file] = (name, row)
    for name, versions in universe.versions.items():
        for version in versions:
            files = pages.read(name).get(version, [])
            if name.startswith(MEASURED_WHOLE):
                wanted.update({row.file: (name, row) for row in files})
            elif files and not any(row.file in wanted for row in files):
                wanted[files[0].file] = (name, files[0])
    return wanted


class Measurements:
    """What wheels hold, read once and kept by hash."""

    def __init__(self, index: PipIndex, cache: Path) -> None:
        self._index = index
        self._cache = cache

    def read(self, name: str, row: IndexFile) -> WheelContents:
        """Measure a wheel, or take what an earlier run measured."""
        path = self._path(row)
        if not path.exists():
            is_wheel = row.file.endswith(".whl")
            known = self._index.read_wheel(row.url, name) if is_wheel else self._index.read_source(row.url)
            write(path, json.dumps(known.to_json()))
        return WheelContents.from_json(json.loads(path.read_text(encoding="utf-8")))

    def known(self, row: IndexFile) -> WheelContents | None:
        """Return an earlier measurement."""
        path = self._path(row)
        return WheelContents.from_json(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def _path(self, row: IndexFile) -> Path:
        return self._cache / f"{row.sha256 or row.file}.json"


def documents_of(universe: Universe, pages: Pages, measured: Measurements, dated: str) -> dict[str, dict[str, Any]]:
    """Return the new content of every file, by name."""
    contents = {
        (name, version): {
            row.file: known for row in pages.read(name).get(version, ()) if (known := measured.known(row))
        }
        for name, versions in universe.versions.items()
        for version in versions
    }
    extras = _needed_extras(contents)
    documents = {}
    for name, versions in sorted(universe.versions.items()):
        releases = [
            _release(pages.read(name).get(version, []), version, contents[name, version], extras[name])
            for version in sorted(versions, key=Version, reverse=True)
        ]
        documents[name] = {"schema_version": 1, "package": name, "dated": dated, "source": SOURCE, "releases": releases}
    return documents


def _needed_extras(contents: dict[tuple[str, str], dict[str, WheelContents]]) -> dict[str, set[str]]:
    """Return name → extras that a request or some requirement in the universe names."""
    extras: dict[str, set[str]] = defaultdict(set, {name: set(values) for name, values in ROOT_EXTRAS.items()})
    is_growing = True
    while is_growing:
        before = {name: set(values) for name, values in extras.items()}
        for (name, _), wheels in contents.items():
            for wheel in wheels.values():
                for text, _, _, _ in reduce_requires(wheel.requires_dist, extras[name], wheel.requires_python):
                    target = Requirement(text)
                    extras[target.name] |= target.extras
        is_growing = before != {name: set(values) for name, values in extras.items() if name in before or values}
    return extras


def _release(
    files: list[IndexFile], version: str, contents: dict[str, WheelContents], extras: set[str]
) -> dict[str, Any]:
    """Return one row of ``releases``, keys in the order of the model."""
    release: dict[str, Any] = {"version": version, "index": "pypi"}
    bounds = sorted({row.requires_python for row in files if row.requires_python})
    if bounds:
        release["requires_python"] = ",".join(part.strip() for part in bounds[0].split(","))
    requires = _merged_requires(contents, extras)
    if requires:
        release["requires"] = requires
    release["wheels"] = []
    for row in sorted(files, key=lambda row: row.file):
        known = contents.get(row.file)
        wheel = {
            "file": row.file,
            "sha256": row.sha256,
            "size": known.size if known else None,
            "installed": known.installed if known else None,
            "uploaded": row.uploaded,
        }
        release["wheels"].append({key: value for key, value in wheel.items() if value is not None})
    if files and all(row.is_yanked for row in files):
        release["yanked"] = True
    return release


def _merged_requires(contents: dict[str, WheelContents], extras: set[str]) -> list[list[str]]:
    """Return the requirements of a release.

    Wheels of one release can disagree (an aarch64 wheel built without CUDA, a Python added later). A row that is
    in all wheels of one machine only is bound to that machine; otherwise the newest Python's wheel speaks.
    """
    spoken: dict[str, list[list[str]]] = {}
    for file in sorted(contents, key=_python_rank):
        wheel = contents[file]
        rows = reduce_requires(wheel.requires_dist, extras, wheel.requires_python)
        for machine in MACHINES.values():
            if machine in file or file.endswith(("-any.whl", ".tar.gz", ".zip")):
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
    digits = "".join(letter for letter in interpreter[3:] if letter.isdigit())
    return int(digits or 0), file


def merge_shipped(document: dict[str, Any], path: Path, allow_shrink: bool) -> dict[str, Any]:
    """Keep rows of other indexes from the shipped file and refuse to lose rows.

    Raises:
        DriftError: The new file has fewer releases or wheels than the shipped one.
    """
    if not path.exists():
        return document
    shipped = json.loads(path.read_text(encoding="utf-8"))
    others = [row for row in shipped["releases"] if row["index"] != "pypi"]
    extra_keys = {key: value for key, value in shipped.items() if key not in document}
    sources = [*document["source"], *(item for item in shipped["source"] if item not in document["source"])]
    releases = sorted([*document["releases"], *others], key=lambda row: Version(row["version"]), reverse=True)
    for what, before, after in (
        ("releases", len(shipped["releases"]), len(releases)),
        ("wheels", _count(shipped["releases"]), _count(releases)),
    ):
        if after < before and not allow_shrink:
            raise DriftError(
                f"{path.name} would shrink from {before} to {after} {what}",
                hints=("look at the difference; `--allow-shrink` writes it all the same",),
            )
    return {**document, "source": sources, **extra_keys, "releases": releases}


def _count(releases: Iterable[dict[str, Any]]) -> int:
    return sum(len(row.get("wheels", ())) for row in releases)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as part:
        part.write(text)
    Path(part.name).chmod(0o644)
    Path(part.name).replace(path)


def run(work: Callable[[Any], object], items: Iterable[Any], jobs: int, word: str) -> None:
    """Do work on every item in threads, with a count on stderr; the first failure ends it."""
    todo = list(items)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, item) for item in todo]
        try:
            for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                future.result()
                if done % 50 == 0 or done == len(todo):
                    print(f"{word} {done}/{len(todo)}", file=sys.stderr)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def refresh(environments: Sequence[Environment], pins: Iterable[str], options: argparse.Namespace) -> int:
    """Solve, measure, compare and write.

    Args:
        environments: What to solve.
        pins: ``name==version`` of releases to keep beside what environments choose.
        options: The parsed command line.

    Returns:
        The number of files that changed.
    """
    index = PipIndex()
    solver = Solver(options.cache / options.dated / "solved", index.url)
    pages = Pages(index, options.cache / options.dated / "pages")
    measured = Measurements(index, options.cache / "wheels")
    universe = solve_all(environments, solver, options.jobs)
    stated = [pin.partition("==")[::2] for pin in pins]
    for name, _ in stated:
        universe.versions.setdefault(name, set())
    run(pages.read, sorted(universe.versions), options.jobs * 2, "read pages")
    for name, version in stated:
        spellings = {other for other in pages.read(name) if Version(other) == Version(version)}
        universe.versions[name] |= spellings or {version}
    add_fitting(universe, pages)
    missing = sorted(
        f"{name}=={version}"
        for name, versions in universe.versions.items()
        for version in versions
        if not pages.read(name).get(version)
    )
    todo = list(wheels_to_measure(universe, pages).values())
    run(lambda item: measured.read(*item), todo, options.jobs * 4, "measured")
    changed = 0
    for name, document in documents_of(universe, pages, measured, options.dated).items():
        path = options.out / f"{name}.json"
        text = encode_json(merge_shipped(document, path, options.allow_shrink))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed += 1
            print(f"{'would change' if options.check else 'wrote'} {path.name}")
            if not options.check:
                write(path, text)
    for environment, reason in sorted(universe.unsolved.items()):
        what = f"{' '.join(environment.requirements)} on {environment.python} {environment.machine}"
        print(f"no solution: {what}: {reason[:300]}", file=sys.stderr)
    for pin in missing:
        print(f"no file: {pin}", file=sys.stderr)
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cache", type=Path, required=True, help="folder for solutions, pages and wheel directories")
    parser.add_argument("--data-dir", type=Path, default=COMPAT, help="folder laid out like compat/ to read rows from")
    parser.add_argument("--out", type=Path, default=COMPAT / "wheels", help="folder of the files to write")
    parser.add_argument(
        "--dated", default=datetime.datetime.now(datetime.UTC).date().isoformat(), help="day of the facts, ISO (today)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="solvers at once; reading uses four times as many threads")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 8 when a file would change")
    parser.add_argument("--allow-shrink", action="store_true", help="accept files with fewer releases or wheels")
    options = parser.parse_args(arguments)
    try:
        matrix = Matrix(options.data_dir)
        changed = refresh(environments_of(matrix), sorted(pinned_by(matrix)), options)
        if options.check and changed:
            raise DriftError(
                f"{changed} files of {options.out.name}/ would change", hints=("run this without --check",)
            )
    except ProvisionError as error:
        print(f"error: {error.message}", *error.because, *error.hints, sep="\n  ", file=sys.stderr)
        return error.exit_code
    return 0


def pinned_by(matrix: Matrix) -> set[str]:
    """Return ``name==version`` of the exact pins that rows state, also of builds that other indexes serve."""
    found = set()
    tables = [build.pins for build in matrix.torch_builds] + [build.toolkit_pins for build in matrix.torch_builds]
    for table in tables:
        for name, bound in (table or {}).items():
            clause = Requirement(f"{canonicalize_name(Requirement(name).name)}{bound}")
            exact = [item.version for item in clause.specifier if item.operator == "==" and "*" not in item.version]
            found |= {f"{clause.name}=={version}" for version in exact}
    return found


if __name__ == "__main__":
    sys.exit(main())
