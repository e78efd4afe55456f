"""The service that shares memory between the nodes of one NVLink domain runs."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.query import gpu_ids
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_UNIT = "nvidia-imex"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask for the unit where the facts say that GPUs of this model are built for it."""
    del expected
    names = {gpu.name for gpu in host.smi.gpus}
    if not names:
        return unknown("nvidia-smi lists no GPU")
    ids = {id_ for name in names for id_ in gpu_ids(matrix, name)}
    if not any(gpu.fabric_manager == "imex" for gpu in matrix.gpus if gpu.id in ids):
        return skipped("these GPUs share no memory between nodes")
    unit = host.units.get(_UNIT)
    if unit is None or not unit.is_installed:
        return failed(f"`{_UNIT}` is not installed", "active", subjects=[_UNIT])
    if not unit.is_active:
        return failed(f"`{_UNIT}` is {unit.active}", "active", subjects=[_UNIT])
    return passed(f"`{_UNIT}` is active")
