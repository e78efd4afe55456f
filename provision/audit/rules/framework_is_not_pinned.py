"""A framework without a version, from PyPI."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import may_have_frameworks
from provision.audit.channels import conda_pytorch
from provision.audit.model import INFO, Environment, Finding, Options
from provision.audit.solved import asked_of, taken_of
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, effective, resolve
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS

ID = "C06"

_KINDS = ("stage", "requirements", "script")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for frameworks that PyPI may serve in any version."""
    if environment.kind not in _KINDS:
        return
    for framework in FRAMEWORKS:
        wanted = effective(environment, matrix, framework)
        if wanted is None or not _is_open(wanted):
            continue
        if framework == "torch" and any(conda_pytorch(environment)):
            # pip leaves what conda brought.
            continue
        if may_have_frameworks(matrix, environment) and not wanted.install.target:
            continue
        from provision.resolve.stack import Stack

        stack = resolve(environment, matrix, options, wanted)
        reasons = []
        taken = [
            version
            for asked in asked_of(environment, matrix, options)
            if asked.install == wanted.install
            for version in taken_of(matrix, asked, framework)
        ]
        if isinstance(stack, Stack) and taken and stack.frameworks[framework] not in taken:
            # An extra that no newer release has holds no installer back.
            reasons.append(f"as of {matrix.dated} that is {framework} {taken[0]}")
        elif isinstance(stack, Stack):
            reasons.append(
                f"as of {matrix.dated} that is {framework} {stack.frameworks[framework]} for CUDA {stack.cuda}, "
                f"which needs driver {stack.driver.minimum} or newer"
            )
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"{wanted.requirement.text} takes whatever is newest",
            # A list says what a program needs; pinning is for the place that installs it.
            severity=INFO if environment.kind == "requirements" else "",
            reasons=(*reasons, "a later build of this file gets another version, and perhaps another CUDA major"),
        )


def _is_open(wanted: Wanted) -> bool:
    if wanted.version is not None or not wanted.is_default or wanted.requirement.is_locked:
        return False
    if wanted.requirement.applies is not True or not wanted.install.is_complete:
        return False
    clauses = [clause for clause in wanted.specifier.split(",") if clause]
    return not any(clause.startswith(("==", "~=", "<")) for clause in clauses)
