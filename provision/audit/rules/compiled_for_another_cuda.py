"""An extension is compiled by an nvcc of another CUDA major than torch has."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.compiled import builds_from_source
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import build_of, cuda_major, cuda_of
from provision.matrix.load import Matrix

ID = "C01"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Compare the toolkit of the base with the build of torch where something is compiled against both."""
    base = environment.base
    if base is None or base.cuda is None or environment.has_nvcc is not True:
        return
    for compiled in builds_from_source(environment, matrix, options):
        if compiled.torch is None:
            continue
        cuda = cuda_of(build_of(matrix, compiled.torch))
        if cuda is None or cuda_major(cuda) == cuda_major(base.cuda):
            continue
        yield found(
            matrix,
            ID,
            span=compiled.span,
            message=f"{compiled.name} is compiled with CUDA {base.cuda} for a torch of CUDA {cuda}",
            reasons=(
                f"{base.repository}:{base.tag} has the nvcc of CUDA {base.cuda}",
                f"torch is the build for CUDA {cuda}",
                compiled.because,
            ),
            facts=("knowledge/extension-cuda-mismatch",),
        )
