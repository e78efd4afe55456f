"""What installers are asked for, as problems that have an answer or none, by what the index has.

Each command is one problem: what an installer finds there already it may replace, so that a command which cannot be
met alone cannot be met anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from provision.audit.last import keeps_last
from provision.audit.model import Environment, Install, Options, Requirement, Way
from provision.audit.wanted import is_pytorch_index, platform_of, python_of
from provision.audit.ways import write_pins
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.versions import parse, spec_of

if TYPE_CHECKING:
    from provision.matrix.published import PublishedPackage
    from provision.resolve.published import Clash, Problem, Want

KINDS = frozenset(("stage", "requirements", "conda", "pyproject", "script"))
INSTALLERS = frozenset(("pip", "uv", "poetry", "pdm"))
FAMILY = ("torch", "torchaudio", "torchvision")
_OTHER_RELEASES = ("nightly", "test", "lts")
_MOVED_MAX = 3
"""How many pins one way out moves at most."""
_TRIED_MAX = 8
"""How many ways out of one conflict are looked for."""


@record
class Asked:
    """One command and the problem that it is.

    Attributes:
        install: The command.
        pythons: The Python in force, or all that it may be, newest first.
        is_python_known: There is one in force.
        problem: Without a Python.
        origins: Requirement of the problem → that of the file.
    """

    install: Install
    pythons: tuple[str, ...]
    is_python_known: bool
    problem: Problem
    origins: Mapping[Want, Requirement]

    def at(self, python: str | None) -> Problem:
        """Return the problem for one Python."""
        return replace(self.problem, python=python)


@keeps_last
def asked_of(environment: Environment, matrix: Matrix, options: Options) -> tuple[Asked, ...]:
    """Return the commands of an environment that ask for something of which releases are known."""
    return tuple(_commands(environment, matrix, options))


def _commands(environment: Environment, matrix: Matrix, options: Options) -> Iterator[Asked]:
    if environment.kind not in KINDS:
        return
    for install in environment.installs:
        if install.installer not in INSTALLERS or install.is_dry or install.has_no_index or not install.is_certain:
            continue
        wished = [item for item in install.requirements if item.specifier or item.extras]
        # Most files ask for nothing of which releases are kept.
        if any(item.ecosystem == "pypi" and not item.is_locked and _is_kept(matrix, item.name) for item in wished):
            yield problem_of(environment, matrix, options, install)


def problem_of(environment: Environment, matrix: Matrix, options: Options, install: Install) -> Asked:
    """Return what one command asks for as a problem."""
    requirements = [
        item
        for item in install.requirements
        if item.ecosystem == "pypi" and item.applies is True and not item.is_locked
    ]
    from provision.resolve.published import Problem, Want

    origins: dict[Want, Requirement] = {}
    opaque: dict[str, None] = {}
    for item in requirements:
        if item.url is not None or item.index is not None or not _is_meant(item.specifier):
            opaque[item.name] = None
        origins.setdefault(Want(name=item.name, extras=item.extras, specifier=_public(item.specifier)), item)
    bounds = tuple(
        Want(name=item.name, specifier=_public(item.specifier))
        for item in install.constraints
        if item.ecosystem == "pypi" and item.applies is True and item.url is None and _is_meant(item.specifier)
    )
    python = install.python or python_of(environment, None, options)
    machine = "aarch64" if platform_of(environment, options) == ("linux/arm64",) else "x86_64"
    own = [index for index in install.indexes if not index.is_explicit and index.kind != "channel"]
    pages = matrix.setting("audit_rules.toml", "jax_wheel_pages").values
    if own and all(index.url is not None and index.url.startswith(tuple(pages)) for index in own):
        # They have the binary parts of jax, and jax itself comes from the index.
        own = []
        opaque |= dict.fromkeys(matrix.setting("audit_rules.toml", "jax_binary_parts").values)
    return Asked(
        install=install,
        pythons=(python,) if python is not None else _allowed(matrix, environment.pythons),
        is_python_known=python is not None,
        problem=Problem(
            wants=tuple(origins),
            bounds=bounds,
            machine=machine,
            opaque=tuple(opaque),
            is_open=bool(own) or not install.has_default_index or not install.is_complete,
        ),
        origins=origins,
    )


def _is_kept(matrix: Matrix, name: str) -> bool:
    return matrix.published(name) is not None


def _is_meant(specifier: str) -> bool:
    try:
        spec_of(specifier)
    except ValueError:
        return False
    return True


def _public(specifier: str) -> str:
    """Return clauses without the local parts of versions, which no package index has."""
    return ",".join(clause.partition("+")[0] for clause in specifier.split(","))


@lru_cache(maxsize=64)
def _allowed(matrix: Matrix, pythons: str) -> tuple[str, ...]:
    return tuple(row.version for row in matrix.pythons if not pythons or f"{row.version}.99" in spec_of(pythons))


def is_absent(matrix: Matrix, asked: Asked, want: Want) -> bool:
    """Tell whether a pin names a release that is not on the index, and not newer than all that are known.

    Of pre-releases only those are known that were taken away.
    """
    from provision.resolve.published import is_on_index

    version = pin_of(want.specifier)
    is_elsewhere = asked.problem.is_open and not (want.name in FAMILY and _asks_pytorch(matrix, asked.install))
    if version is None or is_elsewhere or want.name in asked.problem.opaque:
        return False
    removed = matrix.setting("audit_rules.toml", "prereleases_removed").entries.get(want.name)
    if removed is not None and parse(version).is_prerelease:
        return parse(version).release < parse(removed).release
    return is_on_index(matrix, want.name, version) is False


def _asks_pytorch(matrix: Matrix, install: Install) -> bool:
    """Tell whether nothing but indexes of PyTorch's stable releases, which are those of PyPI, is asked beside PyPI."""
    return install.is_complete and all(
        is_pytorch_index(matrix, index.url) and not any(part in (index.url or "") for part in _OTHER_RELEASES)
        for index in install.indexes
        if index.kind != "channel"
    )


def pinned_release(matrix: Matrix, asked: Asked, want: Want) -> tuple[PublishedPackage, str] | None:
    """Return the release that a pin names, with its distribution."""
    from provision.resolve.published import release_for

    version, package = pin_of(want.specifier), matrix.published(want.name)
    if version is None or package is None or want.name in asked.problem.opaque:
        return None
    release = release_for(package, version)
    return (package, release.version) if release is not None else None


def pin_of(specifier: str) -> str | None:
    """Return the version that clauses pin, ``None`` where they are a range, a prefix or several."""
    is_exact = specifier.startswith("==") and not specifier.startswith("===")
    return specifier[2:] if is_exact and "," not in specifier and "*" not in specifier else None


def clash_of(matrix: Matrix, asked: Asked) -> tuple[Clash, str | None] | None:
    """Return why a command cannot be met, with the Python that this is about: none where it is no Python's fault.

    ``None`` where it can be, or where that is not known: for some Python that it may be, or at all.
    """
    lost = {want.name for want in asked.problem.wants if is_absent(matrix, asked, want)}
    opaque = tuple(dict.fromkeys((*asked.problem.opaque, *sorted(lost))))
    return _clash(matrix, replace(asked.problem, opaque=opaque), asked.pythons, asked.is_python_known)


@lru_cache(maxsize=256)
def _clash(
    matrix: Matrix, problem: Problem, pythons: tuple[str, ...], is_known: bool
) -> tuple[Clash, str | None] | None:
    from provision.resolve.published import Clash, is_satisfiable, least_of, solve_published

    asked = _alone(matrix, problem) or problem
    # Most releases are for the Pythons in the middle.
    likely = sorted(pythons, key=lambda python: abs(pythons.index(python) - len(pythons) // 2))
    if not likely or is_satisfiable(matrix, replace(asked, python=likely[0])):
        return None
    whole = solve_published(matrix, problem)
    if isinstance(whole, Clash):
        # What excludes itself on no Python in particular does so on each.
        return whole, None
    if any(is_satisfiable(matrix, replace(asked, python=python)) for python in likely):
        return None
    if is_known:
        answer = solve_published(matrix, replace(problem, python=pythons[0]))
        return (answer, pythons[0]) if isinstance(answer, Clash) else None
    least = least_of(matrix, problem, likely)
    return Clash(wants=least.wants, reasons=_reasons(matrix, least, pythons)), None


def _reasons(matrix: Matrix, least: Problem, pythons: tuple[str, ...]) -> tuple[str, ...]:
    """Say what excludes each other on the newest Python that each requirement alone is for, else for which each is."""
    from provision.resolve.published import Clash, is_satisfiable, solve_published

    alone = [replace(least, wants=(want,), is_shallow=True) for want in least.wants]
    fitting = [[at for at in pythons if is_satisfiable(matrix, replace(part, python=at))] for part in alone]
    shared = next((python for python in pythons if all(python in part for part in fitting)), None)
    if shared is not None:
        answer = solve_published(matrix, replace(least, python=shared))
        return tuple(f"on Python {shared}: {line}" for line in answer.reasons) if isinstance(answer, Clash) else ()
    return tuple(
        f"{want.text} installs on {f'Python {part[-1]} to {part[0]}' if part[1:] else f'Python {part[0]} alone'}"
        if part
        else f"{want.text} installs on no Python from {pythons[-1]} to {pythons[0]}"
        for want, part in zip(least.wants, fitting, strict=True)
    )


def _alone(matrix: Matrix, problem: Problem) -> Problem | None:
    """Return a problem about nothing but Pythons where one distribution alone is known: it does not exclude itself."""
    known = [want for want in problem.wants if want.name not in problem.opaque and _is_kept(matrix, want.name)]
    names = {want.name for want in known}
    if len(names) != 1 or problem.bounds or any(want.extras for want in known):
        return None
    return replace(problem, wants=tuple(known), is_shallow=True)


def taken_of(matrix: Matrix, asked: Asked, name: str) -> tuple[str, ...]:
    """Return the releases of a distribution that an installer takes, newest first.

    That is one for each Python that it may be and that has not ended; none where nothing can be said of one of them.
    """
    taken = () if asked.problem.is_open else _taken_on(matrix, asked, name)
    return () if "" in taken else tuple(sorted(taken, key=parse, reverse=True))


def likely_of(matrix: Matrix, asked: Asked) -> Asked:
    """Return a command as it likely is: a mirror has what PyPI has, and an index of PyTorch nothing else."""
    install = asked.install
    own = [index for index in install.indexes if not index.is_explicit and index.kind != "channel"]
    pages = matrix.setting("audit_rules.toml", "wheel_pages").entries
    held = {page: names for page, names in pages.items() if any((index.url or "").startswith(page) for index in own)}
    own = [index for index in own if not (index.url or "").startswith(tuple(pages))]
    if not _is_mirrored(install) and not all(is_pytorch_index(matrix, index.url) for index in own):
        return asked
    if not (install.is_complete or install.is_index_known):
        return asked
    family = {item.name for item in asked.origins.values() if not item.version}.intersection(FAMILY) if own else ()
    opaque = tuple(dict.fromkeys((*asked.problem.opaque, *sorted(family), *" ".join(held.values()).split())))
    return replace(asked, problem=replace(asked.problem, is_open=False, opaque=opaque))


def _is_mirrored(install: Install) -> bool:
    """Tell whether an index stands in the place of PyPI that looks like a copy of it."""
    return any(index.kind == "index" and (index.url or "").rstrip("/").endswith("/simple") for index in install.indexes)


def _taken_on(matrix: Matrix, asked: Asked, name: str) -> tuple[str, ...]:
    """Return the releases of a distribution on each Python that it may be, an empty text where there is none.

    A Python that nothing can be installed for is none that it may be. Where that is each that has not ended, it is the
    newest of the others.
    """
    from provision.resolve.published import picks_of

    current = current_pythons(matrix, asked)
    answers = [answer for python in current if (answer := picks_of(matrix, asked.at(python))) is not None]
    if not answers:
        ended = (python for python in asked.pythons if python not in current)
        answers = [answer for python in ended if (answer := picks_of(matrix, asked.at(python))) is not None][:1]
    return tuple(dict.fromkeys(answer.versions.get(name) or "" for answer in answers))


def current_pythons(matrix: Matrix, asked: Asked) -> tuple[str, ...]:
    """Return the Python in force, or those that it may be and that have not ended."""
    if asked.is_python_known:
        return asked.pythons
    ended = {row.version for row in matrix.pythons if (row.end_of_life or matrix.dated) < matrix.dated}
    return tuple(python for python in asked.pythons if python not in ended)


def ways_out(matrix: Matrix, asked: Asked, clashes: Sequence[Sequence[Want]], python: str | None) -> Iterator[Way]:
    """Yield releases that pins could name instead: what an installer takes for them when the others stay.

    No pin is moved that need not be, and first come the ways that take the fewest back.
    """
    wants = tuple(dict.fromkeys(want for clash in clashes for want in clash))
    movable = [want for want in wants if _is_movable(asked.origins[want], want)]
    found: list[tuple[tuple[Want, ...], tuple[str, ...]]] = []
    left = _TRIED_MAX
    for size in range(1, _MOVED_MAX + 1):
        for moved in combinations(movable, size):
            is_enough = all(any(want in moved for want in clash) for clash in clashes)
            if not left or not is_enough or any(set(other) <= set(moved) for other, _ in found):
                continue
            left -= 1
            versions = _versions_of(matrix, asked, moved, python)
            if versions:
                found.append((moved, versions))
    for moved, versions in sorted(found, key=_taken_back):
        yield write_pins(*zip((asked.origins[want] for want in moved), versions, strict=True))


def _versions_of(matrix: Matrix, asked: Asked, moved: tuple[Want, ...], python: str | None) -> tuple[str, ...]:
    """Return the releases that an installer takes for some pins when all others stay, nothing where it takes none."""
    from provision.resolve.published import Want, is_satisfiable, picks_of

    others = tuple(Want(name=want.name, extras=want.extras) if want in moved else want for want in asked.problem.wants)
    # Where the others exclude each other too, no release of these is a way out.
    rest = tuple(want for want in asked.problem.wants if want not in moved)
    for at in (python,) if python is not None else asked.pythons:
        if rest and not is_satisfiable(matrix, replace(asked.problem, wants=rest, python=at)):
            continue
        answer = picks_of(matrix, replace(asked.problem, wants=others, python=at))
        versions = [answer.versions.get(want.name) if answer is not None else None for want in moved]
        if None not in versions:
            return tuple(version for version in versions if version)
    return ()


def _taken_back(way: tuple[tuple[Want, ...], tuple[str, ...]]) -> int:
    return sum(
        parse(version) < parse(pin_of(want.specifier) or "0") for want, version in zip(way[0], way[1], strict=True)
    )


def _is_movable(requirement: Requirement, want: Want) -> bool:
    is_pin = pin_of(want.specifier) is not None and "+" not in requirement.specifier
    return is_pin and requirement.is_literal and not requirement.is_hashed
