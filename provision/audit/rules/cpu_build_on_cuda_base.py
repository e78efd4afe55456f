"""A build without CUDA in an image with CUDA."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, effective
from provision.matrix.load import Matrix

ID = "C14"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the CPU variant on a CUDA base."""
    base = environment.base
    wanted = effective(environment, matrix, "torch")
    if base is None or base.cuda is None or wanted is None or wanted.variant != CPU or not environment.is_target:
        return
    yield found(
        matrix,
        ID,
        span=wanted.requirement.span,
        message=f"{wanted.requirement.text} is a build without CUDA, in an image with CUDA {base.cuda}",
        reasons=("the index cpu serves builds that use no GPU",),
    )
