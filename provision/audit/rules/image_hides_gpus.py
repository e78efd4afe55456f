"""The environment takes the GPUs away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Options, Variable
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "E05"

_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_NOTHING = ("none", "void", "")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at what stands at the end of a GPU environment."""
    if not environment.is_gpu or not environment.is_target:
        return
    for variable, message, reason in _faults(environment):
        yield found(matrix, ID, span=variable.span, message=message, reasons=(reason,))


def _faults(environment: Environment) -> Iterator[tuple[Variable, str, str]]:
    devices = environment.variables.get(_DEVICES)
    if devices is not None and devices.kind == "env" and devices.value in _NOTHING:
        reason = "the runtime gives a container with this value no GPU at all"
        yield devices, f"{_DEVICES}={devices.value} hides every GPU", reason
    capabilities = environment.variables.get(_CAPABILITIES)
    if capabilities is None or capabilities.value is None or capabilities.kind != "env" or not capabilities.value:
        return
    asked = {part.strip() for part in capabilities.value.split(",")}
    if not asked & {"compute", "all"}:
        reason = "libcuda belongs to the capability compute, and without it no framework sees a GPU"
        yield capabilities, f"{_CAPABILITIES}={capabilities.value} leaves CUDA out", reason
