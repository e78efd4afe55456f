"""A service whose image is made for GPUs and that reserves none."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "R01"

_CPU = "cpu"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at services that stand on CUDA."""
    base = environment.base
    if environment.kind != "service" or environment.gpus is not None or environment.runtime:
        return
    names = (environment.name, environment.file.rpartition("/")[2], *environment.profiles)
    if any(_CPU in re.split(r"[^a-z0-9]+", name.lower()) for name in names):
        # A service, a profile or a file of this name is the variant of another one for machines without a GPU.
        return
    if base is None or base.cuda is None or base.repository is None:
        return
    yield found(
        matrix,
        ID,
        span=environment.span,
        message=f"the service {environment.name} reserves no GPU",
        reasons=(f"its image stands on {base.repository}:{base.tag}, which has CUDA {base.cuda}",),
    )
