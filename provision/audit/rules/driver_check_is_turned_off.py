"""The check of the driver is turned off inside an image."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "E04"

_VARIABLE = "NVIDIA_DISABLE_REQUIRE"
_TRUE = ("1", "true", "t")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at what the stage sets itself; a service may do so for one host."""
    if environment.kind != "stage":
        return
    for variable in environment.own_variables:
        is_on = (variable.value or "").lower() in _TRUE
        if variable.name == _VARIABLE and variable.kind == "env" and is_on:
            yield found(
                matrix,
                ID,
                span=variable.span,
                message=f"{_VARIABLE} lets the image start on any driver",
                reasons=("what the base asks of the driver is no longer compared with it",),
                facts=("knowledge/image-require-cuda",),
            )
