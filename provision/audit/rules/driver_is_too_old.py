"""The driver that the person named is older than the stack needs."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import ERROR, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import exact_of, resolve, standing
from provision.audit.ways import ways_of
from provision.matrix.load import Matrix
from provision.matrix.query import driver_release
from provision.resolve.request import FRAMEWORKS
from provision.resolve.stack import Refusal, Stack
from provision.versions import parse

ID = "D01"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Compare the driver with the floor of the stack that the resolver finds for each framework."""
    if options.driver is None:
        return
    have = driver_release(matrix, options.driver)
    for framework in FRAMEWORKS:
        wanted = standing(environment, matrix, framework)
        if wanted is None or (wanted.variant is None and not wanted.is_default):
            continue
        stack = resolve(environment, matrix, options, wanted)
        if not isinstance(stack, Stack) or parse(have) >= parse(stack.driver.minimum):
            continue
        if have == options.driver and "." not in have and parse(have) >= parse(stack.driver.minimum.partition(".")[0]):
            # Of a branch whose releases are not known, some may do.
            continue
        version = stack.frameworks[framework]
        # A range may hold another release that runs there; a version that is installed as it stands may not.
        exact = resolve(environment, matrix, options, wanted, driver=options.driver, **exact_of(stack, wanted))
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"{framework} {version} needs driver {stack.driver.minimum}, not {have}",
            reasons=(f"it brings CUDA {stack.cuda}, which runs on driver {stack.driver.minimum} or newer",),
            severity=ERROR if isinstance(exact, Refusal) and exact.is_proved else "",
            ways=ways_of(environment, matrix, options, wanted),
            facts=[fact for reason in stack.reasons if reason.subject == "driver" for fact in reason.facts],
        )
