"""A placeholder on the index in place of the framework."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Edit, Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.versions import parse, spec_of

ID = "C15"

_TENSORFLOW_GPU = "tensorflow-gpu"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the names of placeholders."""
    settings = matrix.settings("audit_rules.toml")
    real = settings["placeholders"].entries
    since = settings["placeholders_since"].entries
    for install, requirement in environment.requirements():
        if requirement.name not in real or requirement.ecosystem != "pypi" or requirement.url is not None:
            continue
        first = since.get(requirement.name)
        if requirement.specifier and first is not None and not _takes(requirement, first):
            continue
        name = real[requirement.name]
        is_plain = requirement.is_literal and not requirement.specifier and not requirement.extras
        edits = (
            [Edit(span=requirement.name_span, text=name)] if is_plain and requirement.name != _TENSORFLOW_GPU else []
        )
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.name} on PyPI is a placeholder",
            reasons=("its installation ends with an error that names the real package",),
            hint=f"ask for `{_named(install, environment, matrix, requirement.name, name)}`",
            edits=edits,
            fix=f"ask for {name}",
        )


def _takes(requirement: Requirement, since: str) -> bool:
    """Tell whether an installer takes the placeholder, the last release of all, by a pin or where no bound is below."""
    if requirement.version is not None:
        return parse(requirement.version) >= parse(since)
    try:
        return since in spec_of(requirement.specifier)
    except ValueError:
        return False


def _named(install: Install, environment: Environment, matrix: Matrix, asked: str, name: str) -> str:
    """Return the name to ask for: TensorFlow has the extra for its CUDA only on Pythons that a release with it has."""
    if asked != _TENSORFLOW_GPU:
        return name
    python = install.python or environment.python
    has_extra = python is None or any(row.has_cuda_extra and python in row.pythons for row in matrix.tensorflow)
    return "tensorflow[and-cuda]" if has_extra else "tensorflow"
