"""A CUDA base whose driver check is about another CUDA than the framework brings."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import cuda_image, is_cuda_repository
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import build_of, cuda_major, cuda_of, effective, resolve
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS
from provision.versions import parse

ID = "D02"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Compare the major of the base with that of the framework, and their floors."""
    base = environment.base
    if base is None or base.cuda is None or not environment.is_target or not is_cuda_repository(matrix, base):
        return
    image = cuda_image(matrix, base)
    for framework in FRAMEWORKS:
        wanted = effective(environment, matrix, framework)
        if wanted is None or wanted.variant == "system-cuda" or (wanted.variant is None and not wanted.is_default):
            continue
        if framework == "jax" and wanted.variant is None:
            continue
        # Where the build is named, its CUDA is known without a search.
        cuda = cuda_of(build_of(matrix, wanted)) if framework == "torch" else None
        if cuda is not None and (cuda_major(cuda) or 0) <= (cuda_major(base.cuda) or 0):
            continue
        from provision.resolve.stack import Stack

        stack = resolve(environment, matrix, options, wanted)
        if not isinstance(stack, Stack) or (cuda_major(stack.cuda) or 0) <= (cuda_major(base.cuda) or 0):
            continue
        floors = [row.minimum_driver for row in matrix.cuda_below(base.cuda)]
        low = f"driver {min(floors, key=parse)} or newer" if floors else "older drivers"
        version = stack.frameworks[framework]
        yield found(
            matrix,
            ID,
            span=base.span,
            message=f"the base checks for CUDA {base.cuda}, and {framework} {version} brings CUDA {stack.cuda}",
            reasons=(
                f"CUDA {base.cuda} runs on {low}, and the base lets those start",
                f"{framework} {version} needs driver {stack.driver.minimum} or newer",
            ),
            facts=(f"image/{image.tag}",) if image is not None else (),
        )
        return
