"""What a later command of an image does to packages that an earlier one pinned.

An installer keeps what is there where that meets all that the new command asks for, and otherwise takes another
release. What stands beside it and needs the old one is left as it is: pip says so in a warning and ends well, uv says
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.bases import may_have_frameworks
from provision.audit.commands import is_removed
from provision.audit.model import Environment, Install, Options, Requirement
from provision.audit.solved import Asked, current_pythons, problem_of
from provision.audit.wanted import admits, excludes
from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.published import Want, need_asks, picks_of

__all__ = ["Broken", "broken_by_later"]

_Asks = dict[str, list[tuple[Want, Requirement, str]]]
"""Package → what a command asks of it, the requirement that comes to it, and how."""


@record
class Broken:
    """A package that a later command leaves without what it needs.

    Attributes:
        name: The package.
        version: Its release.
        install: The command that installed it.
        need: What it needs.
        asked: What the later command asks instead.
        by: The requirement of the later command that comes to it.
        because: How it does, empty where it names the package itself.
    """

    name: str
    version: str
    install: Install
    need: Want
    asked: Want
    by: Requirement
    because: str


def broken_by_later(environment: Environment, matrix: Matrix, options: Options) -> Iterator[Broken]:
    """Yield what a command surely breaks and no later one names again, in the order of these commands."""
    installs = [install for install in environment.installs if not install.is_dry]
    if len(installs) < 2 or len({install.target for install in installs}) != 1:
        return
    if may_have_frameworks(matrix, environment) or any(item.installer not in ("pip", "uv") for item in installs):
        return
    there: dict[str, tuple[str, Install]] = {}
    found: list[Broken] = []
    for install in installs:
        asked = _known(environment, matrix, options, install)
        if asked is None:
            # Nobody knows what this command moves; it mends what it names.
            named = {requirement.name for requirement in install.requirements}
            found = [item for item in found if named.isdisjoint((item.name, item.need.name))]
            there = {}
            continue
        asks = _asks(matrix, asked, is_solved=bool(there))
        found = [item for item in found if item.name not in asks and item.need.name not in asks]
        there = {name: pair for name, pair in there.items() if _stays(asks.get(name, ()), pair[0])}
        for name, (version, before) in there.items():
            found += _breaks(matrix, asked, name, version, before, asks)
        for want, requirement in asked.origins.items():
            if requirement.version is not None:
                there[want.name] = (requirement.version.partition("+")[0], install)
    if not any(is_removed(command, item.name) for command in environment.commands for item in found):
        yield from found


def _known(environment: Environment, matrix: Matrix, options: Options, install: Install) -> Asked | None:
    """Return a command as a problem, ``None`` where it may install more than is known."""
    if not (install.is_certain and install.is_complete) or any(item.applies is None for item in install.requirements):
        return None
    asked = problem_of(environment, matrix, options, install)
    is_known = not asked.problem.opaque and all(matrix.published(want.name) for want in asked.problem.wants)
    return asked if is_known else None


def _asks(matrix: Matrix, asked: Asked, *, is_solved: bool) -> _Asks:
    """Return what a command asks of each package, what it installs included where that is sure."""
    asks: _Asks = {}
    for want, requirement in asked.origins.items():
        asks.setdefault(want.name, []).append((want, requirement, ""))
    if not is_solved or asked.problem.is_open or asked.install.has_no_deps:
        return asks
    pythons = current_pythons(matrix, asked)
    answers = [picks_of(matrix, asked.at(python)) for python in pythons]
    picked = [answer.versions for answer in answers if answer is not None]
    if not picked or len(picked) != len(answers):
        return asks
    for want, requirement in asked.origins.items():
        version = picked[0].get(want.name)
        if version is None or any(versions.get(want.name) != version for versions in picked):
            continue
        for need in need_asks(matrix, want.name, version, asked.at(pythons[0])):
            text = f"this takes {want.name} {version}, which needs {need.text}"
            asks.setdefault(need.name, []).append((need, requirement, text))
    return asks


def _stays(asks: Iterable[tuple[Want, Requirement, str]], version: str) -> bool:
    """Tell whether a release is left in place: only packages ask for it, and it is what they need."""
    return all(because and admits(want.specifier, version) for want, _, because in asks)


def _breaks(matrix: Matrix, asked: Asked, name: str, version: str, install: Install, asks: _Asks) -> Iterator[Broken]:
    python = asked.pythons[0] if asked.pythons else None
    for need in need_asks(matrix, name, version, asked.at(python)):
        for other, requirement, because in asks.get(need.name, ()):
            if need.specifier and other.specifier and excludes(need.specifier, other.specifier):
                yield Broken(
                    name=name,
                    version=version,
                    install=install,
                    need=need,
                    asked=other,
                    by=requirement,
                    because=because,
                )
                break
