"""A later command that names an index for a framework which is there already."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.commands import is_removed_after, is_upgrade
from provision.audit.model import Environment, Finding, Install, Options
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, admits, build_of, cuda_of, frameworks, index_variant, python_of, standing
from provision.matrix.load import Matrix
from provision.versions import parse

ID = "C26"

_TORCH = "torch"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold what each command names an index for against what those before it put there."""
    wishes = [wanted for wanted in frameworks(environment, matrix) if wanted.framework == _TORCH]
    for later in wishes:
        asked = _asked_build(matrix, later)
        if asked is None or is_upgrade(environment, later.install, _TORCH):
            continue
        there = _there_before(environment, matrix, options, wishes, later)
        if there is None:
            continue
        builds, because = there
        if not builds or asked in builds:
            continue
        yield found(
            matrix,
            ID,
            span=later.requirement.span,
            message=f"{later.requirement.text} is there already, and the build for {_shown(asked)} is not looked for",
            reasons=(because, "an installer leaves what will do, from whichever index it came"),
        )


def _asked_build(matrix: Matrix, wanted: Wanted) -> str | None:
    """Return the build that the index of a command has, where nothing but the index asks for it."""
    install, requirement = wanted.install, wanted.requirement
    if install.installer not in ("pip", "uv") or install.is_dry or install.has_no_index or not install.is_certain:
        return None
    if requirement.applies is not True or requirement.url is not None or requirement.local:
        return None
    builds = {_build_of_index(matrix, index.url) for index in install.indexes if index.kind != "channel"}
    return builds.pop() if len(builds) == 1 else None


def _build_of_index(matrix: Matrix, url: str | None) -> str | None:
    """Return the build that an index or a page of links below it has."""
    build = index_variant(matrix, url)
    return build or index_variant(matrix, (url or "").rpartition("/")[0])


def _there_before(
    environment: Environment, matrix: Matrix, options: Options, wishes: list[Wanted], later: Wanted
) -> tuple[set[str], str] | None:
    """Return which build of a release that will do is surely there, and how that is known; ``None`` where none is.

    What the default index has it may be one of several, by the Python; there is none where that is not known.
    """
    have = standing(environment, matrix, _TORCH)
    if have is not None and have.install.installer == "base":
        if later.install.target or have.variant is None or have.version is None:
            return None
        return ({have.variant}, f"the base comes with {_TORCH} {have.version} for {_shown(have.variant)}")
    for earlier in wishes:
        if earlier is later or earlier.install.span == later.install.span:
            break
        if not _stands(environment, earlier.install, later) or earlier.requirement.applies is not True:
            continue
        is_open = earlier.version is None and not later.specifier
        if not is_open and (earlier.version is None or not admits(later.specifier, earlier.version)):
            continue
        build = build_of(matrix, earlier)
        if build is None and not earlier.is_default:
            return None
        whose = f"the build for {_shown(build)}" if build else "the build that the default index has"
        builds = {build} if build else _newest_builds(environment, matrix, options, earlier)
        return builds, f"`{earlier.install.command}` before installs {earlier.requirement.text}, {whose}"
    if later.specifier:
        return None
    from provision.audit.presence import brings

    before = environment.installs[: environment.installs.index(later.install)]
    for install, taken in brings(environment, matrix, options, _TORCH):
        if (
            install in before
            and _stands(environment, install, later)
            and install.has_default_index
            and not install.indexes
        ):
            builds = {row.variant for row in matrix.torch_builds_of(set(taken)) if row.index == "pypi"}
            return builds, f"`{install.command}` before brings {_TORCH} from the default index"
    return None


def _newest_builds(environment: Environment, matrix: Matrix, options: Options, wanted: Wanted) -> set[str]:
    """Return the build of the newest release that the default index has for a wish, if one is known."""
    python = python_of(environment, wanted, options)
    rows = [
        row
        for row in matrix.torch_builds
        if row.index == "pypi"
        and (python is None or python in row.pythons)
        and (wanted.version == row.torch if wanted.version is not None else admits(wanted.specifier, row.torch))
    ]
    newest = max((parse(row.torch) for row in rows), default=None)
    return {row.variant for row in rows if parse(row.torch) == newest}


def _stands(environment: Environment, install: Install, later: Wanted) -> bool:
    """Tell whether what a command installs is where a later one looks, and stays there until then."""
    is_plain = install.is_certain and not install.is_dry and install.target == later.install.target
    return is_plain and not is_removed_after(environment, install, _TORCH)


def _shown(build: str) -> str:
    cuda = cuda_of(build)
    return f"CUDA {cuda}" if cuda is not None else build.upper()
