"""A package whose setup imports pkg_resources, built with a setuptools that has none."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.commands import command_of, is_brought_up
from provision.audit.model import ERROR, Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import admits, python_of
from provision.matrix.load import Matrix

ID = "X02"

_KINDS = ("stage", "requirements", "conda", "script")
_INSTALLERS = ("pip", "uv")
_PIP = "pip"
_EVERY = ">=0"
_BOUNDS = ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "UV_BUILD_CONSTRAINT")
_FLAGS = ("--build-constraint", "--build-constraints", "-b")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for releases that are built apart, where nothing bounds what they are built with."""
    if environment.kind not in _KINDS:
        return
    settings = matrix.settings("audit_rules.toml")
    bounds, apart = settings["pkg_resources_setups"].entries, settings["pkg_resources_isolated"].values
    gone = settings["pkg_resources_gone"].value or ""
    for install in environment.installs:
        python = install.python or python_of(environment, None, options)
        if not _is_open(environment, install) or not _is_gone(
            matrix, python, settings["pkg_resources_gone"].value or ""
        ):
            continue
        for requirement in install.requirements:
            bound = bounds.get(requirement.name)
            if bound is None or not _is_built(install, requirement, bound):
                continue
            is_sure = (
                requirement.name in apart or install.installer != _PIP or is_brought_up(environment, install, _PIP)
            )
            yield found(
                matrix,
                ID,
                span=requirement.span,
                message=f"{requirement.text} is built with a setuptools that has no pkg_resources",
                reasons=(
                    "its setup.py imports pkg_resources",
                    f"a build apart takes the newest setuptools, and {gone} was the first without it",
                ),
                severity=ERROR if is_sure and python is not None else "",
            )


def _is_open(environment: Environment, install: Install) -> bool:
    """Tell whether an install builds apart, and nothing is seen that bounds what it builds with."""
    if (
        install.installer not in _INSTALLERS
        or not install.is_build_isolated
        or install.is_dry
        or not install.is_certain
    ):
        return False
    if any(name in install.environment or name in environment.variables for name in _BOUNDS):
        return False
    command = command_of(environment, install)
    words = [word.text for word in command.words] if command is not None else []
    return None not in words and not any(str(word).partition("=")[0] in _FLAGS for word in words)


def _is_gone(matrix: Matrix, python: str | None, since: str) -> bool:
    """Tell whether the newest setuptools for a Python has no pkg_resources; for one that is not known, it has none."""
    setuptools = matrix.published("setuptools")
    release = setuptools.release(since) if setuptools is not None else None
    return python is None or (release is not None and admits(release.requires_python, f"{python}.99"))


def _is_built(install: Install, requirement: Requirement, bound: str) -> bool:
    """Tell whether all that a requirement admits is built: no index but the default one may have wheels of it."""
    if requirement.url is not None or requirement.ecosystem != "pypi" or requirement.applies is not True:
        return False
    if install.has_no_index or any(index.kind == "find-links" for index in install.indexes):
        return False
    return bound == _EVERY or (requirement.version is not None and admits(bound, requirement.version))
