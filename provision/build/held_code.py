"""Hold the code that goes into an image against its lock: imports that no package brings, and releases too new for it.

A list that leaves versions open leads to the newest, and code of last year may import what these no longer have. Where
that is proved by the sources of the wheel, the newest release that has it is taken. What no package of the lock brings
is told, with the flag that adds it where the project's own files name the package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby, islice

from provision.build.brought import Brought, Wheel
from provision.build.imports import Code, Import, is_certain
from provision.build.uv import Uv
from provision.errors import MissingDependencyError, UsageError, first_of
from provision.index.page import IndexFile
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.resolve.environment import MACHINES, wheel_rank
from provision.resolve.halves import is_open
from provision.resolve.request import Request
from provision.resolve.requirements import normalise_name, requirement_of
from provision.resolve.stack import LockedPackage, Reason, Stack
from provision.versions import admits_python, parse, spec_of

_AT_ONCE = 8
_ROUNDS_MAX = 3
_PROBES_MAX = 32
_MAJORS_MAX = 12
_SHOWN = 5
_TOOLS = frozenset({"pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel"})
"""What Pythons and base images bring, of which other rules speak."""


@record
class Held:
    """A lock that was held against code.

    Attributes:
        stack: It, moved where the code is not for what it had.
        notes: What was moved and why, a sentence each.
        warnings: What the code imports and the lock does not bring, a sentence each.
    """

    stack: Stack
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@record
class _Lack:
    """What a package of the lock is proved not to have, and where the code imports it."""

    package: LockedPackage
    imports: tuple[Import, ...]

    @property
    def wanted(self) -> list[tuple[str, str | None]]:
        return list(dict.fromkeys((item.module, item.name) for item in self.imports))

    @property
    def shown(self) -> str:
        item = self.imports[0]
        return f"{item.module}.{item.name}" if item.name else item.module


class _Wheels:
    """Finds and reads the wheels of a lock, and of other releases of its packages."""

    def __init__(self, stack: Stack, uv: Uv, brought: Brought, published_before: str | None) -> None:
        self._python, self._machine = str(stack.python), MACHINES[stack.platform]
        self._uv = uv
        self._before = published_before
        self.brought = brought

    def of(self, package: LockedPackage) -> Wheel | None:
        """Return the wheel of a package of the lock; nothing where it is a source, or is not found."""
        if package.is_source or package.file is None or not package.file.endswith(".whl"):
            return None

        def find_url() -> str | None:
            url = package.url or self._uv.urls.get((package.name, package.version))
            if url is None and package.index == "pypi":
                url = next((row.url for row in self._uv.files(package.name) if row.file == package.file), None)
            return url

        return Wheel(name=package.name, version=package.version, find_url=find_url, sha256=package.sha256)

    def releases(self, package: LockedPackage, request: Request) -> dict[str, Wheel]:
        """Return the releases up to that of the lock which fit the Python, the day and the lines, oldest first."""
        lines = [requirement_of(line) for line in (*request.requirements, *request.constraints)]
        bounds = [spec_of(line.specifier) for line in lines if line.name == package.name and line.specifier]
        best: dict[str, tuple[object, IndexFile]] = {}
        for row in self._uv.files(package.name):
            parts = row.file.split("-")
            if row.is_yanked or not row.file.endswith(".whl") or len(parts) not in (5, 6):
                continue
            if self._before is not None and (row.uploaded is None or row.uploaded >= self._before):
                continue
            if row.requires_python is not None and not admits_python(row.requires_python, self._python):
                continue
            try:
                rank = wheel_rank(row.file, self._python, self._machine, None)
                version = parse(parts[1])
            except ValueError:
                continue
            is_fitting = not version.is_prerelease and version <= parse(package.version)
            if rank is None or not is_fitting or not all(parts[1] in bound for bound in bounds):
                continue
            if parts[1] not in best or best[parts[1]][0] < rank:  # type: ignore[operator]
                best[parts[1]] = (rank, row)
        return {
            version: Wheel(name=package.name, version=version, find_url=partial(str, row.url), sha256=row.sha256)
            for version, (_, row) in sorted(best.items(), key=lambda item: parse(item[0]))
        }


def hold_code(
    stack: Stack,
    request: Request,
    matrix: Matrix,
    codes: Sequence[Code],
    *,
    uv: Uv,
    brought: Brought,
    published_before: str | None,
    relock: Callable[[tuple[str, ...]], Stack | None],
    optional: Mapping[str, Sequence[str]],
) -> Held:
    """Hold the code against the lock.

    Args:
        stack: The lock.
        request: What it is the answer to.
        matrix: The facts.
        codes: What the folders that go into the image import.
        uv: Who was asked for the lock.
        brought: Reads wheels.
        published_before: Moment from which on no release counts.
        relock: Locks again under further bounds, or tells that it cannot be.
        optional: Distribution → the flags by which the project's own files would add it.
    """
    notes: list[str] = []
    warnings: list[str] = []
    bounds: list[str] = []
    reasons: list[Reason] = []
    given_up: set[str] = set()
    for _ in range(_ROUNDS_MAX):
        wheels = _Wheels(stack, uv, brought, published_before)
        lacks = [item for item in _lacks(stack, request, matrix, codes, wheels) if item.package.name not in given_up]
        if not lacks:
            break
        for lack in lacks:
            name, first = lack.package.name, lack.imports[0]
            given_up.add(name)
            said = f"{first.place} imports `{lack.shown}`, which {name} {lack.package.version} does not have"
            found = _older(lack, _wanted_of(name, stack, matrix, codes), request, wheels)
            if found is None:
                warnings.append(f"{said}; no release that your lines admit was found to have it")
                continue
            version, later = found
            bound = f"{name}<{later}"
            again = relock((*bounds, bound))
            if again is None:
                warnings.append(f"{said}; {name} {version} has it, and does not go with the rest")
                continue
            bounds.append(bound)
            because = f"your code imports {lack.shown}, which {later} no longer has"
            reasons.append(Reason(subject=name, because=because))
            stack = replace(again, reasons=(*again.reasons, *reasons))
            notes.append(f"{said}: {stack.packages[name]} is taken, as `{bound}` in your lines would")
    warnings += _undeclared(stack, matrix, codes, _Wheels(stack, uv, brought, published_before), optional)
    return Held(stack=stack, notes=tuple(notes), warnings=tuple(warnings))


def _owners(stack: Stack, matrix: Matrix) -> dict[str, str]:
    """Return the module → the package of the lock, of those modules whose name the facts know to be another."""
    return {module: name for module, name in _named(matrix).items() if name in stack.packages}


def _named(matrix: Matrix) -> dict[str, str]:
    """Return the module → the distribution of all such modules."""
    rows = matrix.rows("diagnoses.toml", "module")
    return {row.id: normalise_name(row.package.split()[0].strip("'")) for row in rows}


def _wanted_of(name: str, stack: Stack, matrix: Matrix, codes: Sequence[Code]) -> list[tuple[str, str | None]]:
    """Return all that the code takes out of a package."""
    owners = _owners(stack, matrix)
    found = [
        (item.module, item.name)
        for code in codes
        for item in code.imports
        if owners.get(item.top, normalise_name(item.top)) == name and (item.name or "." in item.module)
    ]
    return list(dict.fromkeys(found))


def _lacks(stack: Stack, request: Request, matrix: Matrix, codes: Sequence[Code], wheels: _Wheels) -> list[_Lack]:
    """Return what the packages that the lines leave open are proved not to have."""
    packages = {item.name: item for item in stack.image.packages} if stack.image is not None else {}
    closed = {
        normalise_name(line.name)
        for line in map(requirement_of, (*request.requirements, *request.constraints, *request.overrides))
        if line.url is not None or re.search(r"(?:^|,)(?:<|==|~=)", line.specifier)
    }
    owners = _owners(stack, matrix)
    asked = {owners.get(item.top, normalise_name(item.top)) for code in codes for item in code.imports}
    names = sorted(name for name in asked & set(packages) if is_open(name) and name not in closed)

    def look(name: str) -> set[tuple[str, str | None]]:
        wanted = _wanted_of(name, stack, matrix, codes)
        try:
            wheel = wheels.of(packages[name]) if wanted else None
            return wheels.brought.lacks(wheel, wanted) if wheel is not None else set()
        except (MissingDependencyError, UsageError):
            return set()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(names, pool.map(look, names), strict=True))
    lacks = []
    for name, missing in found.items():
        imports = [
            item
            for code in codes
            for item in code.imports
            if (item.module, item.name) in missing and _is_core(item, code) and is_certain(item, code)
        ]
        if imports and _is_alone(imports[0].top, name, packages.values(), wheels):
            lacks.append(_Lack(package=packages[name], imports=tuple(imports)))
    return lacks


def _is_core(item: Import, code: Code) -> bool:
    """Tell whether a file is part of a package, or lies at the root of the code or of its `src`."""
    folders = item.file.split("/")[:-1]
    places = ("/".join(folders[: count + 1]) for count in range(len(folders)))
    return folders in ([], ["src"]) or any(f"{place}/__init__.py" in code.paths for place in places)


def _is_alone(top: str, name: str, packages: Iterable[LockedPackage], wheels: _Wheels) -> bool:
    """Tell whether no other package of the lock may have modules below the same name."""
    return all(
        top not in found if found is not None else not item.name.startswith(normalise_name(top))
        for item, found in _tops(packages, wheels)
        if item.name != name
    )


def _tops(packages: Iterable[LockedPackage], wheels: _Wheels) -> Iterator[tuple[LockedPackage, frozenset[str] | None]]:
    """Yield the top-level modules of each package; nothing for one that cannot be read."""

    def look(item: LockedPackage) -> frozenset[str] | None:
        try:
            wheel = wheels.of(item)
            return wheels.brought.tops(wheel) if wheel is not None else None
        except (MissingDependencyError, UsageError):
            return None

    ordered = list(packages)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from zip(ordered, pool.map(look, ordered), strict=True)


def _older(
    lack: _Lack, wanted: list[tuple[str, str | None]], request: Request, wheels: _Wheels
) -> tuple[str, str] | None:
    """Return the newest release that has all that the code takes out of it, and the first one after it.

    Names go for good, as a rule with a new series of versions: the last release of each is looked at first.
    """
    try:
        releases = wheels.releases(lack.package, request)
        versions = list(releases)
        asked: dict[int, bool] = {}

        def has_all(place: int) -> bool:
            if place not in asked:
                asked[place] = not wheels.brought.lacks_any(releases[versions[place]], wanted)
            return asked[place]

        good = next((place for place in islice(_ends(versions), _PROBES_MAX) if has_all(place)), None)
        bad = min((place for place in asked if good is not None and place > good), default=None)
        if good is None or bad is None:
            return None
        step = good + 1
        while bad - good > 1:
            good, bad = (step, bad) if has_all(step) else (good, step)
            step = (good + bad) // 2
    except (MissingDependencyError, UsageError):
        return None
    return versions[good], versions[bad]


def _ends(versions: list[str]) -> Iterator[int]:
    """Yield where the last release of each major is, newest first, then of a minor 1, 2, 4 … before these."""
    series: dict[int, list[int]] = {}
    for (major, _), group in groupby(range(len(versions)), key=lambda place: (*parse(versions[place]).release, 0)[:2]):
        series.setdefault(major, []).append(list(group)[-1])
    majors = [lasts[::-1] for _, lasts in sorted(series.items(), reverse=True)][:_MAJORS_MAX]
    step = 0
    while any(step < len(minors) for minors in majors):
        yield from (minors[step] for minors in majors if step < len(minors))
        step = step * 2 or 1


def _undeclared(
    stack: Stack,
    matrix: Matrix,
    codes: Sequence[Code],
    wheels: _Wheels,
    optional: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield a sentence on what the code imports and no package of the lock brings, if anything."""
    if stack.image is None or stack.request.base is not None:
        return
    owners = _owners(stack, matrix)
    known = {*stack.packages, *owners}
    left: dict[str, Import] = {}
    for code in codes:
        for item in code.imports:
            is_new = not {item.top, normalise_name(item.top)} & known and item.top not in _TOOLS
            if is_new and item.top not in left and is_certain(item, code):
                left[item.top] = item
    if not left:
        return
    brought: set[str] = set()
    is_whole = True
    # Frameworks are large, and rarely bring what nobody else does.
    for is_other in (False, True):
        part = [item for item in stack.image.packages if is_open(item.name) != is_other]
        for _, tops in _tops(part, wheels) if left.keys() - brought else ():
            brought |= tops or set()
            is_whole = is_whole and tops is not None
    told = []
    facts = _named(matrix)
    for top, item in left.items():
        package = facts.get(top, normalise_name(top))
        flags = optional.get(package, ())
        if top in brought or not (is_whole or flags):
            continue
        line = f"a line `{package}` after `-r`" if flags or top in facts else ""
        ways = " or ".join([*(f"`{flag}`" for flag in flags[:1]), *([line] if line else [])])
        told.append(f"`{top}` ({item.place}{f'; {ways} adds it' if ways else ''})")
    if told:
        yield f"your code imports what no package of the lock brings: {first_of(told, _SHOWN)}"
