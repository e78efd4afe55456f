"""A later install of an open package that brings a torch of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.channels import PYTORCH, release_of
from provision.audit.commands import is_apart, is_upgrade
from provision.audit.companions import fact_ids, newest_needs
from provision.audit.model import Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import admits, frameworks, python_of
from provision.matrix.load import Matrix

ID = "C10"

_PULLERS = ("torchvision", "torchaudio", "vllm", "xformers")
_COMPANIONS = ("torchvision", "torchaudio")
_TORCH = "torch"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Walk the installs in order and remember which torch is there."""
    base = environment.base
    have = base.frameworks.get(_TORCH, "") if base is not None else ""
    if have and is_apart(environment):
        have = ""
    origin = "the base comes with" if have else ""
    # Images that come with torch come with its companions too, and pip leaves what is there.
    present = set(_COMPANIONS) if have else set()
    own = {id(wanted.requirement): wanted for wanted in frameworks(environment, matrix)}
    target = ""
    for install in environment.installs:
        if install.is_dry or not install.is_certain or install.has_no_deps:
            continue
        named = {item.name: item for item in install.requirements if item.ecosystem == "conda"}
        if PYTORCH in named:
            have, origin, target = release_of(named[PYTORCH]) or "", f"`{install.command}` installed", install.target
            present = set(named)
        asked = [own[id(item)] for item in install.requirements if id(item) in own and item.name == _TORCH]
        if asked:
            pinned = next((wanted.version for wanted in asked if wanted.version is not None), None)
            names = {item.name for item in install.requirements}
            present = names if pinned is not None else present | names
            if pinned is not None:
                have, origin, target = pinned, f"`{install.command}` installed", install.target
            elif not have:
                return
            continue
        if not have or install.target != target:
            continue
        if any(item.name == _TORCH and admits(item.specifier, have) for item in install.constraints):
            continue
        python = install.python or python_of(environment, None, options)
        kept = {name for name in present if not is_upgrade(environment, install, name)}
        yield from _pulled(matrix, install, have, origin, python, kept)
        present = present | {item.name for item in install.requirements}


def _pulled(
    matrix: Matrix, install: Install, have: str, origin: str, python: str | None, present: set[str]
) -> Iterator[Finding]:
    for requirement in install.requirements:
        if requirement.name in present and not requirement.specifier:
            continue
        if requirement.name not in _PULLERS or requirement.applies is not True or not _is_open(requirement):
            continue
        bounds = [item.specifier for item in install.constraints if item.name == requirement.name]
        specifier = ",".join(part for part in (requirement.specifier, *bounds) if part)
        newest = newest_needs(matrix, requirement.name, python, specifier)
        if newest is None or admits(newest[1], have):
            continue
        version, needs = newest
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.text} replaces torch {have}",
            reasons=(
                f"{origin} torch {have}",
                f"as of {matrix.dated} this takes {requirement.name} {version}, which needs torch{needs}",
            ),
            facts=fact_ids(matrix, requirement.name, version),
        )


def _is_open(requirement: Requirement) -> bool:
    return requirement.version is None and requirement.url is None and requirement.ecosystem == "pypi"
