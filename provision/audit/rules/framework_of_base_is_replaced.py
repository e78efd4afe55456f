"""The framework of the base is replaced by another build of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.commands import is_apart
from provision.audit.companions import fact_ids, needs_of, newest_needs
from provision.audit.model import Base, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import admits, frameworks, python_of
from provision.matrix.load import Matrix
from provision.versions import parse

ID = "B08"

_COMPANIONS = ("torchvision", "torchaudio")
_PULLERS = (*_COMPANIONS, "vllm", "xformers")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Compare what is asked for with what the base is known to have."""
    base = environment.base
    if base is None or is_apart(environment):
        return
    for wanted in frameworks(environment, matrix):
        have = base.frameworks.get(wanted.framework)
        if have is None or wanted.install.target or wanted.install.is_dry or wanted.requirement.applies is not True:
            continue
        if have and admits(wanted.specifier, have) and wanted.version in (None, have):
            continue
        if not have and wanted.version is None:
            continue
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"{wanted.requirement.text} replaces the {wanted.framework} of the base",
            reasons=(f"{base.repository}:{base.tag} comes with {_own(base, wanted.framework)}", *_held(matrix, base)),
        )
    if base.is_own_build and "torch" in base.frameworks:
        yield from _pulled(environment, matrix, options, base)


def _own(base: Base, framework: str) -> str:
    have = base.frameworks[framework]
    if base.is_own_build:
        return f"a {framework} of the vendor's own, built between two releases"
    return f"{framework} {have}" if have else f"a {framework} of its own"


def _held(matrix: Matrix, base: Base) -> tuple[str, ...]:
    """Return that the image keeps pip from replacing it, where its release does so."""
    settings = matrix.settings("audit_rules.toml")
    since, file = settings["own_build_constrained_since"].value or "", settings["own_build_constraints"].value
    release = base.tag.partition("-")[0]
    is_dated = release.replace(".", "").isdigit() and release.count(".") == 1
    if base.repository != settings["own_build_images"].values[0] or not is_dated or parse(release) < parse(since):
        return ()
    return (f"from {since} on its {file} pins what it has, and pip refuses another version until that line is gone",)


def _pulled(environment: Environment, matrix: Matrix, options: Options, base: Base) -> Iterator[Finding]:
    """Yield what needs one exact release of torch: a build between two releases is none."""
    for install, requirement in environment.requirements():
        if requirement.name not in _PULLERS or requirement.applies is not True or requirement.url is not None:
            continue
        if install.target or install.is_dry or install.has_no_deps or not install.is_certain:
            continue
        if any(item.name == "torch" for _, item in environment.requirements()):
            return
        if requirement.version is not None:
            version = requirement.version.partition("+")[0]
            needs = needs_of(matrix, requirement.name, version)
        elif requirement.name in _COMPANIONS and not requirement.specifier:
            continue
        else:
            python = install.python or python_of(environment, None, options)
            version, needs = newest_needs(matrix, requirement.name, python, requirement.specifier) or ("", None)
        if needs is None or not needs.startswith("=="):
            continue
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.text} replaces the torch of the base",
            reasons=(
                f"{requirement.name} {version} needs torch{needs}",
                f"{base.repository}:{base.tag} comes with {_own(base, 'torch')}",
                *_held(matrix, base),
            ),
            facts=fact_ids(matrix, requirement.name, version),
        )
