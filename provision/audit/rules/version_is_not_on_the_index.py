"""A pin on a version that is not on the index, or a name that is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.bases import may_have_frameworks
from provision.audit.model import Environment, Finding, Options, Requirement, Way
from provision.audit.solved import asked_of, is_absent
from provision.audit.verdict import found
from provision.audit.wanted import is_pytorch_index
from provision.audit.ways import write_pins
from provision.matrix.load import Matrix
from provision.matrix.published import PublishedPackage
from provision.resolve.request import FRAMEWORKS
from provision.versions import parse

ID = "C18"

_TORCH_FAMILY = ("torch", "torchvision", "torchaudio")
"""Local versions of these are another rule's matter."""
_KINDS = ("stage", "requirements", "conda", "pyproject", "script")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look pins up in the list of all releases."""
    for asked in asked_of(environment, matrix, options):
        for want, requirement in asked.origins.items():
            package = matrix.published(want.name)
            if not is_absent(matrix, asked, want) or _is_told_elsewhere(requirement, want.specifier, package):
                continue
            version = requirement.version or want.specifier.removeprefix("==")
            known = package.versions if package is not None else ()
            # Newest first.
            newer = [item for item in known if parse(item) > parse(version.partition("+")[0])]
            near = [*newer[-1:], *known[len(newer) : len(newer) + 1]]
            yield found(
                matrix,
                ID,
                span=requirement.span,
                message=f"{want.name} {version} is not on the package index",
                reasons=_reasons(package, near),
                ways=_ways(requirement, near),
            )
    yield from _local_versions(environment, matrix)
    yield from _unknown_names(environment, matrix)


def _local_versions(environment: Environment, matrix: Matrix) -> Iterator[Finding]:
    """Yield local versions where the default index alone is asked: it takes none, of whichever package."""
    if may_have_frameworks(matrix, environment):
        return
    for install in environment.installs:
        own = [index for index in install.indexes if index.kind != "channel"]
        is_known = install.is_complete or install.is_index_known
        if own or not is_known or not install.has_default_index or install.has_no_index:
            continue
        for requirement in install.requirements:
            if not requirement.local or requirement.name in _TORCH_FAMILY or requirement.is_locked:
                continue
            is_index = requirement.ecosystem == "pypi" and requirement.url is None and requirement.index is None
            if is_index and requirement.applies is True:
                yield found(
                    matrix,
                    ID,
                    span=requirement.span,
                    message=f"{requirement.text} is not on PyPI, and no index in force has it",
                    reasons=(
                        f"PyPI takes no release with a local version such as +{requirement.local}",
                        "no index but the default one is asked",
                    ),
                    hint=f"name the index that has it, or take {requirement.name} without +{requirement.local}",
                )


def _is_told_elsewhere(requirement: Requirement, specifier: str, package: PublishedPackage | None) -> bool:
    """Tell whether a pin is of a local version that is told of below, or of a framework before the oldest known one."""
    version = parse(specifier.removeprefix("=="))
    if requirement.name in FRAMEWORKS and not version.is_prerelease:
        return package is None or version.is_postrelease or version < parse(package.versions[-1])
    return bool(requirement.local) and requirement.name not in _TORCH_FAMILY


def _unknown_names(environment: Environment, matrix: Matrix) -> Iterator[Finding]:
    """Yield the projects that are built from their repositories alone, where only the default index is asked."""
    settings = matrix.settings("audit_rules.toml")
    homes, meant = settings["not_on_index"].entries, settings["names_not_on_index"].entries
    modules = settings["modules_not_on_index"].values
    if environment.kind not in _KINDS or may_have_frameworks(matrix, environment):
        return
    if any(not install.is_complete and not install.is_file for install in environment.installs):
        return
    from_elsewhere = {item.name for _, item in environment.requirements() if item.url is not None}
    for install in environment.installs:
        own = [item for item in install.indexes if item.kind != "channel" and not is_pytorch_index(matrix, item.url)]
        if own or not install.has_default_index or install.has_no_index or install.is_dry:
            continue
        for requirement in install.requirements:
            name = requirement.name
            if name in from_elsewhere or requirement.index is not None or requirement.url is not None:
                continue
            if name in homes:
                reason = "it is built from its repository, of which `pip freeze` writes the name alone"
                hint = f"name where it comes from: {homes[name]}"
            elif name in modules:
                reason, hint = "the module comes with Python", "take the line out"
            elif meant.get(name):
                reason, hint = f"{meant[name]} is what is meant", f"write `{meant[name]}`"
            elif name in meant:
                reason, hint = "pip has no package of this name, whichever program listed it", "take the line out"
            else:
                continue
            if requirement.ecosystem == "pypi" and requirement.applies is True and not requirement.is_locked:
                yield found(
                    matrix,
                    ID,
                    span=requirement.span,
                    message=f"there is no {name} on the package index",
                    reasons=(reason,),
                    hint=hint,
                )


def _ways(requirement: Requirement, near: Iterable[str]) -> Iterator[Way]:
    if requirement.is_literal and not requirement.is_hashed and not requirement.local:
        yield from (write_pins((requirement, version)) for version in near)


def _reasons(package: PublishedPackage | None, near: list[str]) -> tuple[str, ...]:
    if package is None:
        return ()
    dated = f"as of {package.dated} no release has this version: it never came, or was taken away"
    return (dated, f"the releases around it are {' and '.join(reversed(near))}") if near else (dated,)
