"""Which wheels go into one environment: the closure of what was asked for, over the wheels the matrix knows.

Newest first, depth first, jumping back to a choice that had a part in the failure. The universe is small (a file a
distribution in ``compat/wheels``), so the search is short; it is bounded all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from provision.matrix.load import Matrix
from provision.matrix.model import Wheel, WheelRelease
from provision.records import record
from provision.resolve.markers import applies
from provision.resolve.stack import FactRef
from provision.versions import admits, admits_python, is_empty, minor_of, parse

__all__ = [
    "MACHINES",
    "Clash",
    "Demand",
    "Environment",
    "Given",
    "Pick",
    "applies",
    "cuda_runtime",
    "needed_glibc",
    "solve_environment",
    "wheel_rank",
]

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""Container platform → the machine name of wheel tags and markers."""
_STEPS_MAX = 20_000
_MANYLINUX = re.compile(r"manylinux_2_([0-9]+)_")


@record
class Demand:
    """A distribution someone needs.

    Attributes:
        name: Normalised, with extras (``cuda-toolkit[cublas,cudart]``).
        specifier: ``>=1,<2`` or empty.
        why: Who needs it, for people (``torch 2.1.2``).
        part: The part of the request it comes from (``torch``, ``requirements``), for conflicts.
        is_bound: It limits the distribution if something else needs it, and does not add it.
        by: The picked distribution it comes from; empty for what the search starts from.
        facts: The rows it rests on, where it comes from no distribution.
    """

    name: str
    specifier: str
    why: str
    part: str
    is_bound: bool = False
    by: str = ""
    facts: tuple[FactRef, ...] = ()


@record
class Pick:
    """One distribution of the solved environment; ``wheel`` is absent for one the matrix knows no file of."""

    name: str
    version: str
    why: str
    release: WheelRelease | None
    wheel: Wheel | None


@record
class Clash:
    """Why no environment exists.

    Attributes:
        is_proved: The demands exclude each other whatever wheels exist; else a wheel is merely not known.
        name: The distribution they disagree on.
        demands: The demands on it.
    """

    is_proved: bool
    name: str
    demands: tuple[Demand, ...]

    @property
    def sentence(self) -> str:
        """The clash in words."""
        bounds = [demand for demand in self.demands if demand.specifier] or list(self.demands)
        wants = [f"{demand.why} needs {self.name}{demand.specifier}" for demand in bounds]
        text = " and ".join(dict.fromkeys(wants))
        return text if self.is_proved else f"{text}, of which the facts know no wheel for this Python and machine"


@record
class Environment:
    """A closed set of distributions, by name."""

    picks: tuple[Pick, ...]


@record
class Given:
    """A distribution whose version is fixed and whose needs a fact states; a row of it may still know the file."""

    version: str
    requires: tuple[tuple[str, str, str, str], ...]


def solve_environment(
    matrix: Matrix,
    demands: tuple[Demand, ...],
    *,
    python: str,
    machine: str,
    glibc: str | None,
    given: dict[str, Given],
) -> Environment | Clash:
    """Find the newest set of wheels that meets every demand.

    Args:
        matrix: The facts.
        demands: Roots and bounds.
        python: ``3.11`` or ``3.13t``.
        machine: ``x86_64`` or ``aarch64``.
        glibc: glibc of the base, ``2.36``; wheels that need a newer one do not count. Absent = any.
        given: Name → fixed version and its needs, for index wheels without a row.
    """
    return _Search(matrix, python, machine, glibc, given).run(demands)


def cuda_runtime(picks: Iterable[Pick]) -> str:
    """Return the minor of the CUDA runtime among the picks (``12.9``), or nothing."""
    for pick in picks:
        if re.fullmatch(r"nvidia-cuda-runtime(-cu[0-9]+)?", pick.name):
            return minor_of(pick.version)
    return ""


class _Search:
    def __init__(self, matrix: Matrix, python: str, machine: str, glibc: str | None, given: dict[str, Given]) -> None:
        self.matrix = matrix
        self.python = python
        self.machine = machine
        self.glibc = glibc
        self.given = given
        self.steps = 0
        self.clash: Clash | None = None
        self.depth_of_clash = -1
        self.blame: set[str] = set()
        self.depth = 0

    def run(self, demands: tuple[Demand, ...]) -> Environment | Clash:
        wants: dict[str, list[Demand]] = {}
        queue: list[str] = []
        for demand in demands:
            name = _split(demand.name)[0]
            wants.setdefault(name, []).append(demand)
            if not demand.is_bound and name not in queue:
                queue.append(name)
        picks = self._assign(queue, wants, {})
        if picks is None:
            return self.clash or Clash(is_proved=False, name="the environment", demands=demands)
        return Environment(picks=tuple(sorted(picks.values(), key=lambda pick: pick.name)))

    def _assign(
        self, queue: list[str], wants: dict[str, list[Demand]], picks: dict[str, Pick]
    ) -> dict[str, Pick] | None:
        if not queue:
            return picks
        self.steps += 1
        if self.steps > _STEPS_MAX:
            return None
        self.depth = len(picks)
        name, rest = queue[0], queue[1:]
        blame = {demand.by for demand in wants[name]}
        for pick, requires in self._candidates(name, wants[name]):
            if name in picks and picks[name].version != pick.version:
                continue
            more, queued = self._expand(pick, requires, wants, {**picks, name: pick}, rest)
            if more is not None:
                solved = self._assign(queued, more, {**picks, name: pick})
                if solved is not None:
                    return solved
                if name not in self.blame:
                    # Another version of this one changes nothing about what failed further down.
                    return None
            blame |= self.blame
        self.blame = blame - {name}
        return None

    def _expand(
        self,
        pick: Pick,
        requires: tuple[tuple[str, str, str, str], ...],
        wants: dict[str, list[Demand]],
        picks: dict[str, Pick],
        queue: list[str],
    ) -> tuple[dict[str, list[Demand]] | None, list[str]]:
        """Add what a pick requires; ``None`` when that contradicts what is picked already."""
        extras = {extra for demand in wants[pick.name] for extra in _split(demand.name)[1]}
        more, queued = dict(wants), list(queue)
        part = wants[pick.name][0].part
        for need, specifier, marker, extra in requires:
            if extra and extra not in extras:
                continue
            if marker and not applies(marker, self.python, self.machine):
                continue
            name, wanted_extras = _split(need)
            why = f"{pick.name} {pick.version}"
            demand = Demand(name=need, specifier=specifier, why=why, part=part, by=pick.name)
            present = picks.get(name)
            more[name] = [*more.get(name, ()), demand]
            if present is None:
                if name not in queued:
                    queued.append(name)
                continue
            if not admits(specifier, present.version):
                self._note(name, more[name], len(picks), is_final=False)
                self.blame = {name, *(item.by for item in more[name])}
                return None, queued
            known = {extra for item in wants[name] for extra in _split(item.name)[1]} if name in wants else set()
            if set(wanted_extras) - known and name not in queued:
                # The same distribution again, for extras nobody had asked for when it was picked.
                queued.append(name)
        return more, queued

    def _candidates(
        self, name: str, demands: list[Demand]
    ) -> Iterator[tuple[Pick, tuple[tuple[str, str, str, str], ...]]]:
        why = next((demand.why for demand in demands if not demand.is_bound), demands[0].why)
        found = False
        fixed = self.given.get(name)
        if fixed is not None:
            if all(admits(demand.specifier, fixed.version) for demand in demands):
                found = True
                package = self.matrix.package(name)
                release = package.release(fixed.version) if package else None
                wheels = release.wheels if release else ()
                wheel = _best_wheel(wheels, self.python, self.machine, self.glibc)
                yield Pick(name=name, version=fixed.version, why=why, release=release, wheel=wheel), fixed.requires
        else:
            specifiers = tuple(dict.fromkeys(demand.specifier for demand in demands))
            for release, wheel in _fitting(self.matrix, name, specifiers, self.python, self.machine, self.glibc):
                found = True
                yield Pick(name=name, version=release.version, why=why, release=release, wheel=wheel), release.requires
        if not found:
            self._note(name, demands, self.depth, is_final=True)
            self.blame = {demand.by for demand in demands}

    def _note(self, name: str, demands: list[Demand], depth: int, *, is_final: bool) -> None:
        """Keep the first deepest clash; it is the one nearest to the cause.

        What a pick contradicts may be met by another pick: it counts where the demands exclude each other, and where
        nothing else is known.
        """
        culprits = _culprits(demands)
        if depth > self.depth_of_clash if is_final or culprits else self.clash is None:
            self.depth_of_clash = depth if is_final or culprits else -1
            demanded = culprits or tuple(demands)
            self.clash = Clash(is_proved=culprits is not None, name=name, demands=demanded)


def _culprits(demands: list[Demand]) -> tuple[Demand, ...] | None:
    """Return demands that exclude each other whatever versions exist, two where two suffice, or ``None``."""
    bounds = [demand for demand in demands if demand.specifier]
    if len(bounds) < 2 or not is_empty(demand.specifier for demand in bounds):
        return None
    for index, left in enumerate(bounds):
        for right in bounds[index + 1 :]:
            if is_empty((left.specifier, right.specifier)):
                return left, right
    return tuple(bounds)


@lru_cache(maxsize=None)
def _split(name: str) -> tuple[str, tuple[str, ...]]:
    if "[" not in name:
        return name, ()
    base, _, extras = name.partition("[")
    return base, tuple(part.strip() for part in extras.rstrip("]").split(",") if part.strip())


class _Fitting:
    """Releases with their wheels, newest first: looked for when they are asked for, and then kept."""

    def __init__(self, found: Iterator[tuple[WheelRelease, Wheel]]) -> None:
        self._rest = found
        self._kept: list[tuple[WheelRelease, Wheel]] = []

    def __iter__(self) -> Iterator[tuple[WheelRelease, Wheel]]:
        place = 0
        while True:
            if place == len(self._kept):
                following = next(self._rest, None)
                if following is None:
                    return
                self._kept.append(following)
            yield self._kept[place]
            place += 1


@lru_cache(maxsize=4096)
def _fitting(
    matrix: Matrix, name: str, specifiers: tuple[str, ...], python: str, machine: str, glibc: str | None
) -> _Fitting:
    """Return the releases of a package that an installer may take; one search asks for the same ones over and over."""
    return _Fitting(_releases(matrix, name, specifiers, python, machine, glibc))


def _releases(
    matrix: Matrix, name: str, specifiers: tuple[str, ...], python: str, machine: str, glibc: str | None
) -> Iterator[tuple[WheelRelease, Wheel]]:
    package = matrix.package(name)
    for version in package.versions if package else ():
        if not all(admits(specifier, version) for specifier in specifiers):
            continue
        release = package.release(version) if package else None
        if release is None or (release.yanked and not any("==" in specifier for specifier in specifiers)):
            continue
        if release.requires_python and not admits_python(release.requires_python, python):
            continue
        if parse(version).local and not any("+" in specifier for specifier in specifiers):
            continue
        wheel = _best_wheel(release.wheels, python, machine, glibc)
        if wheel is not None:
            yield release, wheel


def _best_wheel(wheels: tuple[Wheel, ...], python: str, machine: str, glibc: str | None) -> Wheel | None:
    """Return the wheel an installer would take: most specific Python tag, then newest platform tag."""
    ranked = [(rank, wheel.file, wheel) for wheel in wheels if (rank := wheel_rank(wheel.file, python, machine, glibc))]
    return max(ranked, key=lambda item: item[:2])[2] if ranked else None


@lru_cache(maxsize=None)
def wheel_rank(file: str, python: str, machine: str, glibc: str | None) -> tuple[int, tuple[int, ...], int] | None:
    """Rank a wheel file for an interpreter; ``None`` when it cannot be installed.

    A source distribution, which fits every interpreter, ranks below all wheels.

    Source: the platform compatibility tags of the Python packaging user guide.
    """
    if not file.endswith(".whl"):
        return 1, (0,), 0
    pythons, abis, platforms = file.removesuffix(".whl").rsplit("-", 3)[-3:]
    minor = int(python.rstrip("t").split(".")[1])
    tag = f"cp3{minor}"
    abi = f"{tag}t" if python.endswith("t") else tag
    specific = 0
    for have in pythons.split("."):
        for have_abi in abis.split("."):
            if have == tag and (have_abi == abi or (have_abi == f"{tag}m" and not python.endswith("t"))):
                specific = max(specific, 4000)
            elif have_abi == "abi3" and have.startswith("cp3") and not python.endswith("t") and int(have[3:]) <= minor:
                specific = max(specific, 3000 + int(have[3:]))
            elif have_abi == "none" and have in (tag, f"py3{minor}"):
                specific = max(specific, 2500)
            elif have_abi == "none" and (
                have == "py3" or (have[:3] in ("py3", "cp3") and have[3:].isdigit() and int(have[3:]) <= minor)
            ):
                specific = max(specific, 2000)
    if not specific:
        return None
    best: tuple[int, ...] | None = None
    for platform in platforms.split("."):
        needs = _platform_glibc(platform, machine)
        if needs is not None and (glibc is None or needs <= parse(glibc).release) and (best is None or needs > best):
            best = needs
    if best is None:
        return None
    build = file.split("-")
    return specific, best, int(re.match(r"[0-9]*", build[2])[0] or 0) if len(build) == 6 else 0  # type: ignore[index]


def needed_glibc(files: Iterable[str]) -> int:
    """Return the N of the glibc 2.N that the newest of some wheels needs; 0 where all of them say it in the old way."""
    return max((min(map(int, found)) for file in files if (found := _MANYLINUX.findall(file))), default=0)


_LEGACY_GLIBC = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17), "linux": (2, 0)}


def _platform_glibc(platform: str, machine: str) -> tuple[int, ...] | None:
    if platform == "any":
        return (0,)
    if not platform.endswith(f"_{machine}"):
        return None
    kind = platform.removesuffix(f"_{machine}")
    modern = re.fullmatch(r"manylinux_([0-9]+)_([0-9]+)", kind)
    if modern:
        return int(modern[1]), int(modern[2])
    return _LEGACY_GLIBC.get(kind)
