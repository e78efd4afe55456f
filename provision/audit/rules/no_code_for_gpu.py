"""The build has no code for a GPU that the person named."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import ERROR, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import exact_of, resolve, standing
from provision.audit.ways import ways_of
from provision.audit.wording import facts_of, reasons_of
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS
from provision.resolve.stack import Refusal, Stack

ID = "G01"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Ask the resolver for the very same stack on each GPU."""
    for framework in FRAMEWORKS if options.gpus else ():
        wanted = standing(environment, matrix, framework)
        if wanted is None or (wanted.variant is None and not wanted.is_default):
            continue
        stack = resolve(environment, matrix, options, wanted)
        if not isinstance(stack, Stack):
            continue
        same = stack.frameworks[framework]
        if framework == "torch":
            same = f"{same}+{stack.variants[framework]}"
        for gpu in options.gpus:
            refusal = resolve(environment, matrix, options, wanted, gpu=[gpu], **{framework: same})
            if not isinstance(refusal, Refusal) or not refusal.is_proved:
                continue
            # A range may hold another release that runs there; a version may not.
            every = resolve(environment, matrix, options, wanted, gpu=[gpu], **exact_of(stack, wanted))
            yield found(
                matrix,
                ID,
                span=wanted.requirement.span,
                message=f"{framework} {same} does not run on {gpu}",
                severity=ERROR if isinstance(every, Refusal) and every.is_proved else "",
                reasons=reasons_of(refusal),
                ways=ways_of(environment, matrix, options, wanted),
                facts=facts_of(refusal),
            )
