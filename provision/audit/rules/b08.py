"""The framework of the base is replaced by another build of it."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import admits, frameworks
from provision.matrix.load import Matrix

ID = "B08"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Compare what is asked for with what the base is known to have."""
    del options
    base = environment.base
    if base is None:
        return
    for wanted in frameworks(environment, matrix):
        have = base.frameworks.get(wanted.framework)
        if have is None or wanted.install.target or wanted.install.is_dry or wanted.requirement.applies is not True:
            continue
        if have and admits(wanted.specifier, have) and wanted.version in (None, have):
            continue
        if not have and wanted.version is None:
            continue
        own = f"{wanted.framework} {have}" if have else f"a {wanted.framework} of its own"
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"{wanted.requirement.text} replaces the {wanted.framework} of the base",
            reasons=(f"{base.repository}:{base.tag} comes with {own}",),
        )
