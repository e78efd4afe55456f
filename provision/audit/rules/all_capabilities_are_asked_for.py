"""Every driver capability is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "E03"

_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at what the environment sets itself."""
    for variable in environment.own_variables:
        if variable.name == _VARIABLE and variable.value == "all" and variable.kind == "env":
            yield found(
                matrix,
                ID,
                span=variable.span,
                message=f"{_VARIABLE} asks for every capability",
                reasons=("each one mounts libraries that must be on the host",),
                facts=(),
            )
