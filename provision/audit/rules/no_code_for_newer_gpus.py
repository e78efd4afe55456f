"""The build has no code for GPUs that have been sold for years, and nobody named the GPU that it is for."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, exact_of, resolve, standing
from provision.audit.wording import facts_of, reasons_of
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS
from provision.resolve.stack import Refusal, Stack

ID = "G03"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Ask the resolver for the pinned build on GPUs of the generations that are in use, oldest first."""
    if options.gpus:
        return
    for framework in FRAMEWORKS:
        wanted = standing(environment, matrix, framework)
        if wanted is None or wanted.version is None or wanted.variant == CPU:
            continue
        if wanted.variant is None and not wanted.is_default:
            continue
        stack = resolve(environment, matrix, options, wanted)
        if not isinstance(stack, Stack):
            continue
        for gpu in matrix.setting("audit_rules.toml", "gpus_in_use").values:
            refusal = resolve(environment, matrix, options, wanted, gpu=[gpu], **exact_of(stack, wanted))
            if not isinstance(refusal, Refusal) or not refusal.is_proved:
                continue
            yield found(
                matrix,
                ID,
                span=wanted.requirement.span,
                message=f"{framework} {wanted.version} does not run on GPUs such as {gpu}",
                reasons=reasons_of(refusal),
                facts=facts_of(refusal),
            )
            break
