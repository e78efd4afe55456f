"""A release whose metadata pip no longer reads."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.commands import is_brought_up
from provision.audit.model import ERROR, Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import admits, python_of
from provision.matrix.load import Matrix
from provision.versions import parse

ID = "C24"

_PIP = "pip"
_DEPTH_MAX = 3
_RELEASES_MAX = 12


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold pins against the releases that pip ignores; one below the release that began with it takes them."""
    since = matrix.setting("audit_rules.toml", "pip_ignores_since").value or ""
    for install in environment.installs:
        if install.installer != _PIP or install.is_dry or install.has_no_deps:
            continue
        for requirement in install.requirements:
            if requirement.url is not None or requirement.applies is not True or requirement.ecosystem != "pypi":
                continue
            chain = _chain(matrix, requirement.name, requirement.version or "", _DEPTH_MAX)
            python = install.python or python_of(environment, None, options)
            if not chain or _is_spared(environment, matrix, install, python, since):
                continue
            is_newest = python is not None and is_brought_up(environment, install, _PIP)
            yield _finding(matrix, requirement, chain, since, is_newest=is_newest)


def _chain(matrix: Matrix, name: str, version: str, depth: int) -> tuple[str, ...]:
    """Return a release that pip ignores behind those that need it; nothing where there is none."""
    asked = name, version, depth
    return matrix.keep(("pip_ignores", *asked), lambda: _find_chain(matrix, *asked))


def _find_chain(matrix: Matrix, name: str, version: str, depth: int) -> tuple[str, ...]:
    clauses = matrix.setting("audit_rules.toml", "pip_ignores").entries.get(name)
    if clauses is not None and version and admits(clauses, version):
        return (f"{name} {version}",)
    package = matrix.published(name) if version and depth else None
    release = package.release(version) if package is not None else None
    for need in release.needs() if release is not None and release.has_needs else ():
        asked = matrix.published(need.name) if need.specifier and not need.marker else None
        fitting = [item for item in asked.versions if admits(need.specifier, item)] if asked is not None else []
        # Many releases that all are ignored do not happen, and to look through them takes time.
        if not fitting or len(fitting) > _RELEASES_MAX:
            continue
        chains = [_chain(matrix, need.name, item, depth - 1) for item in fitting]
        if all(chains):
            return (f"{name} {version}", *chains[0])
    return ()


def _is_spared(environment: Environment, matrix: Matrix, install: Install, python: str | None, since: str) -> bool:
    """Tell whether the pip in force is an older one: a bound or a pin says so, or no newer one is for the Python."""
    for other in environment.installs:
        if any(
            item.name == _PIP and item.specifier and not admits(item.specifier, since) for item in other.requirements
        ):
            return True
        if other.span == install.span:
            break
    pip = matrix.published(_PIP)
    if python is None or pip is None:
        return False
    newer = [version for version in pip.versions if parse(version) >= parse(since)]
    return not any(
        release is not None and admits(release.requires_python, f"{python}.99")
        for release in (pip.release(version) for version in newer)
    )


def _finding(
    matrix: Matrix, requirement: Requirement, chain: tuple[str, ...], since: str, *, is_newest: bool
) -> Finding:
    return found(
        matrix,
        ID,
        span=requirement.span,
        message=f"pip ignores {chain[-1]}" + (f", which {chain[0]} needs" if chain[1:] else ""),
        reasons=(
            "a version in its metadata ends in `.*` behind `>=`, which is not a version",
            f"pip {since} and newer ignore such a release" + (", and pip is upgraded before" if is_newest else ""),
        ),
        hint=f'put `pip install "pip<{since}"` before it, or take another release',
        severity=ERROR if is_newest else "",
    )
