"""Figures against what a healthy GPU of the kind reaches, by the facts."""

from __future__ import annotations

from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus
from provision.planner.bench.results import Figure, Results
from provision.records import record

__all__ = ["Band", "judge"]

_GIGA, _TERA = 1e9, 1e12


@record
class Band:
    """One figure beside its floor, both in ``unit``; ``floor_id`` names the fact."""

    id: str
    measure: str
    value: float
    floor: float
    unit: str
    floor_id: str
    is_met: bool


def judge(results: Results, matrix: Matrix) -> tuple[Band, ...]:
    """Return the figures that the facts have a floor for; none on a CPU or an unknown GPU.

    Args:
        results: What was measured.
        matrix: The facts, of which ``performance.toml`` has the floors.
    """
    name = results.machine.get("gpu")
    if not isinstance(name, str):
        return ()
    try:
        gpus = {gpu.id for gpu in find_gpus(matrix, name)}
    except (UnknownError, UsageError):
        return ()
    bands = []
    best = _best(results)
    for floor in matrix.performance_floors:
        found = best.get(floor.measure)
        if found is None or (floor.gpu is not None and floor.gpu not in gpus) or floor.topology not in {None, "nvlink"}:
            continue
        figure, value = found
        if floor.gpus is not None and floor.gpus != results.machine.get("gpus"):
            continue
        bands.append(
            Band(
                id=figure.id,
                measure=floor.measure,
                value=value,
                floor=floor.floor,
                unit=floor.unit,
                floor_id=floor.id,
                is_met=value >= floor.floor,
            )
        )
    return tuple(bands)


def _best(results: Results) -> dict[str, tuple[Figure, float]]:
    """Return measure → the case that shows it best, with its value in the floors' unit."""
    found: dict[str, tuple[Figure, float]] = {}
    for figure in results.figures:
        if figure.status != "ok" or not figure.rate:
            continue
        measure, unit = _measure(figure)
        value = figure.rate / unit
        if measure and (measure not in found or found[measure][1] < value):
            found[measure] = (figure, value)
    return found


def _measure(figure: Figure) -> tuple[str, float]:
    if figure.kind == "gemm" and figure.case.get("precision") == "bf16":
        return "gemm-bf16", _TERA
    if figure.kind == "copy" and figure.case.get("mode") in {"h2d", "d2h"}:
        return str(figure.case["mode"]), _GIGA
    if figure.kind == "allreduce":
        return "allreduce", _GIGA
    return "", 1.0
