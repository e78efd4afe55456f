"""A source package with CUDA kernels in a stage without nvcc."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.compiled import builds_from_source
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "B05"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for a package that is surely compiled where nvcc surely is not."""
    if environment.has_nvcc is not False:
        return
    for compiled in builds_from_source(environment, matrix, options):
        yield found(
            matrix,
            ID,
            span=compiled.span,
            message=f"{compiled.name} is compiled here, and there is no nvcc",
            reasons=(compiled.because, "nvcc is in devel images, such as those of nvidia/cuda, and not in this one"),
            facts=compiled.facts,
        )
