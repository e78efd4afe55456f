"""A distribution that is on the index as source alone, while its wheels go by the CUDA they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import ERROR, Edit, Environment, Finding, Options, Requirement, Way
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.matrix.published import SOURCE
from provision.versions import spec_of

ID = "B12"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for such a distribution where no release that is admitted has a wheel."""
    names = matrix.setting("audit_rules.toml", "wheels_by_cuda").entries
    for install, requirement in environment.requirements():
        if requirement.name not in names or requirement.ecosystem != "pypi" or requirement.url is not None:
            continue
        if requirement.applies is not True or install.is_dry or not _is_source(matrix, requirement):
            continue
        wheels = names[requirement.name].split()
        lacking = ", and there is no nvcc" if environment.has_nvcc is False else ""
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.text} is compiled here{lacking}",
            reasons=(f"{requirement.name} is on the index as source; its wheels are {' and '.join(wheels)}",),
            ways=_ways(requirement, wheels),
            severity=ERROR if environment.has_nvcc is False else "",
        )


def _ways(requirement: Requirement, wheels: list[str]) -> Iterator[Way]:
    """Yield the same release under each name; the rules about CUDA tell which of them goes with the one in force."""
    is_plain = requirement.text == f"{requirement.name}{requirement.specifier}" and not requirement.marker
    if requirement.is_literal and is_plain and requirement.specifier[:1] in ("", "="):
        for name in reversed(wheels):
            text = f"{name}{requirement.specifier}"
            yield Way(text=f"ask for `{text}`", edits=(Edit(span=requirement.span, text=text),))


def _is_source(matrix: Matrix, requirement: Requirement) -> bool:
    package = matrix.published(requirement.name)
    try:
        admitted = spec_of(requirement.specifier)
    except ValueError:
        return False
    newest = next((item for item in package.versions if item in admitted), None) if package is not None else None
    release = package.release(newest) if package is not None and newest is not None else None
    return release is not None and {release.file_for(row.version, "x86_64") for row in matrix.pythons} == {SOURCE}
