"""LD_LIBRARY_PATH leads to a CUDA of the system."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, build_of, cuda_major, cuda_of, effective, resolve
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS
from provision.resolve.stack import Stack
from provision.versions import minor_of

ID = "E01"

_NAME = "LD_LIBRARY_PATH"
_FOLDER = "/usr/local/cuda"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the variable where the base has libraries of the major that the wheels bring in another minor."""
    base = environment.base
    if base is None or base.cuda is None or base.flavour not in ("runtime", "devel"):
        return
    at_end = environment.variables.get(_NAME)
    if at_end is None or at_end.value is None or _FOLDER not in at_end.value:
        return
    for framework in FRAMEWORKS:
        wanted = effective(environment, matrix, framework)
        if (
            wanted is None
            or wanted.variant in ("system-cuda", CPU)
            or (wanted.variant is None and not wanted.is_default)
        ):
            continue
        if framework == "jax" and wanted.variant is None:
            continue
        # Where the build is named, its CUDA is known without a search.
        cuda = cuda_of(build_of(matrix, wanted)) if framework == "torch" else None
        if cuda is not None and (cuda_major(cuda) != cuda_major(base.cuda) or cuda == minor_of(base.cuda)):
            continue
        stack = resolve(environment, matrix, options, wanted)
        if not isinstance(stack, Stack) or cuda_major(stack.cuda) != cuda_major(base.cuda):
            continue
        if minor_of(stack.cuda) == minor_of(base.cuda):
            continue
        yield found(
            matrix,
            ID,
            span=at_end.span,
            message=f"{_NAME} puts CUDA {base.cuda} of the base before CUDA {stack.cuda} of {framework}",
            reasons=(
                f"{base.repository}:{base.tag} has the libraries of CUDA {base.cuda} under {_FOLDER}",
                "the variable is searched before the paths inside the wheels",
            ),
            facts=("knowledge/nvjitlink-path", "knowledge/jax-library-path"),
        )
        return
