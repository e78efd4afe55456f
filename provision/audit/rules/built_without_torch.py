"""flash-attn or one of its kind is built where its setup cannot import torch."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.bases import may_have_frameworks
from provision.audit.model import WARN, Edit, Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import admits
from provision.matrix.load import Matrix

ID = "X01"

_KINDS = ("stage", "conda", "requirements", "script")
_INSTALLERS = ("pip", "uv", "conda")
_COMMANDS = ("sync", "run", "lock", "add")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Walk the installs in order, with torch in mind."""
    if environment.kind not in _KINDS:
        return
    # Of a file alone nobody knows the command; the plain one fails, one with `--no-build-isolation` may not.
    severity = WARN if environment.kind == "requirements" else ""
    base = environment.base
    names = matrix.setting("audit_rules.toml", "build_needs_torch").entries
    legacy = matrix.setting("audit_rules.toml", "build_needs_torch_legacy").values
    repositories = tuple(matrix.setting("audit_rules.toml", "build_needs_torch_repositories").values)
    has_torch = base is None or may_have_frameworks(matrix, environment)
    is_surely_there = base is not None and "torch" in base.frameworks
    have: set[str] = set()
    for install in environment.installs:
        for requirement in install.requirements:
            bound = names.get(requirement.name) if requirement.url is None else _EVERY
            if requirement.url is not None and not _is_from(requirement.url, repositories):
                continue
            # What an earlier command installed meets a requirement without a version, and nothing is built.
            is_met = requirement.name in have and requirement.version is None and requirement.url is None
            if bound is not None and not is_met and _is_one_of(requirement, bound) and _is_built(install, requirement):
                # Without a pyproject.toml an older pip builds it beside what is installed, and finds a torch there.
                is_lenient = has_torch and (requirement.url is not None or requirement.name in legacy)
                weight = WARN if is_lenient or not install.is_certain else severity
                yield from _judge(matrix, install, requirement, weight, has_torch=has_torch, is_there=is_surely_there)
        have.update(item.name for item in install.requirements)
        if any(item.name == "torch" for item in install.requirements):
            has_torch = is_surely_there = True
        elif not install.is_complete or any(item.name not in _TOOLS for item in install.requirements):
            # Most packages may bring torch along, and a list that is not here may name it.
            has_torch = True


_EVERY = ">=0"
_TOOLS = ("einops", "ninja", "numpy", "packaging", "pip", "psutil", "setuptools", "uv", "wheel")


_WITH_PAGES = ("torch-cluster", "torch-scatter", "torch-sparse", "torch-spline-conv")
"""Those with pages of wheels that people name beside them."""


def _is_one_of(requirement: Requirement, bound: str) -> bool:
    """Tell whether all that a requirement admits are releases that need torch to be built."""
    if bound == _EVERY:
        return True
    return requirement.version is not None and admits(bound, requirement.version)


def _is_from(url: str, repositories: tuple[str, ...]) -> bool:
    """Tell whether an address is that of a repository; a wheel of its releases is built already."""
    plain = re.split("[@#?]", url.lower().partition("://")[2].rpartition("@")[2] if "://" in url else "", maxsplit=1)[0]
    return url.startswith("git+") and plain.removesuffix(".git") in repositories


def _is_built(install: Install, requirement: Requirement) -> bool:
    if requirement.ecosystem != "pypi" or requirement.applies is not True or install.is_dry:
        return False
    if requirement.url is None and any(index.kind != "channel" for index in install.indexes):
        # Another index or a page may have wheels.
        return requirement.name not in _WITH_PAGES
    words = install.command.split()
    is_project = len(words) > 1 and words[1] in _COMMANDS
    return install.installer in _INSTALLERS and not is_project


def _judge(
    matrix: Matrix, install: Install, requirement: Requirement, severity: str, *, has_torch: bool, is_there: bool
) -> Iterable[Finding]:
    if install.is_build_isolated:
        edits: list[Edit] = []
        if is_there and install.flags_at is not None and not install.is_file:
            edits.append(Edit(span=install.flags_at, text=install.flag_text("--no-build-isolation")))
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.text} is built in isolation, without torch",
            reasons=("its setup.py imports torch, and its pyproject.toml does not ask for it",),
            hint=f"leave {requirement.name} out of the file, and install it afterwards with `--no-build-isolation`"
            if install.is_file
            else ""
            if is_there
            else "install torch in a command before, then give `--no-build-isolation`",
            severity=severity,
            edits=edits,
            fix="build it against the installed torch",
        )
    elif not has_torch:
        yield found(
            matrix,
            ID,
            span=requirement.span,
            severity=severity,
            message=f"{requirement.text} is built before torch is there",
            reasons=("its setup.py imports torch, and nothing before this command installs it",),
            hint="install torch in a command of its own before",
        )
