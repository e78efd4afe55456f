"""Figures against what a healthy GPU of the kind reaches, by the facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from provision.bench.results import Figure, Results
from provision.matrix.load import Matrix
from provision.matrix.model import PerformanceFloor
from provision.matrix.query import NVLINK, PCIE, find_floor, find_layout, find_slot_floor, gpu_ids
from provision.records import record

_GIGA, _TERA = 1e9, 1e12
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_PART = " MIG "
"""In the name of a part of a GPU, as CUDA gives it."""


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


@record
class Unjudged:
    """A figure that is of a kind the facts have floors for, and the reason why none of them fits."""

    id: str
    measure: str
    value: float
    unit: str
    why: str


def judge(results: Results, matrix: Matrix) -> tuple[Band, ...]:
    """Return the figures that the facts have a floor for, a measure once; none on a CPU.

    Args:
        results: What was measured.
        matrix: The facts, of which ``performance.toml`` has the floors.
    """
    return tuple(row for row in _examine(results, matrix) if isinstance(row, Band))


def find_unjudged(results: Results, matrix: Matrix) -> tuple[Unjudged, ...]:
    """Return the figures of a GPU that should be held against a floor and cannot be, a measure once; none on a CPU."""
    return tuple(row for row in _examine(results, matrix) if isinstance(row, Unjudged))


def _examine(results: Results, matrix: Matrix) -> Iterator[Band | Unjudged]:
    name = results.machine.get("gpu")
    if not isinstance(name, str):
        return
    for measure, figures in _sort(results.figures).items():
        rows = {figure.id: _find(measure, figure, name, results.machine, matrix) for figure in figures}
        found = [figure for figure in figures if isinstance(rows[figure.id], PerformanceFloor)]
        # The best of several sizes: the others are there to be compared, and may be too small to fill the GPU.
        figure = max(found or figures, key=_rate)
        floor = rows[figure.id]
        factor, unit = (_TERA, "TFLOPS") if figure.kind == "gemm" else (_GIGA, "GB/s")
        value = _rate(figure) / factor
        if isinstance(floor, str):
            yield Unjudged(id=figure.id, measure=measure, value=value, unit=unit, why=floor)
            continue
        yield Band(
            id=figure.id,
            measure=measure,
            value=value,
            floor=floor.floor,
            unit=floor.unit,
            floor_id=floor.id,
            is_met=value >= floor.floor,
        )


def _sort(figures: Iterable[Figure]) -> Mapping[str, list[Figure]]:
    """Return the figures that can be judged, by their measure."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.status == "ok" and figure.rate and (measure := _measure(figure)):
            found.setdefault(measure, []).append(figure)
    return found


def _measure(figure: Figure) -> str:
    if figure.kind == "gemm" and figure.case.get("precision") == "bf16":
        return "gemm-bf16"
    if figure.kind == "copy" and figure.case.get("mode") in {"h2d", "d2h"}:
        return str(figure.case["mode"])
    return "allreduce" if figure.kind == "allreduce" else ""


def _rate(figure: Figure) -> float:
    return figure.rate or 0.0


def _find(
    measure: str, figure: Figure, gpu: str, machine: Mapping[str, object], matrix: Matrix
) -> PerformanceFloor | str:
    """Return the floor of a figure, or why there is none."""
    if _PART in gpu:
        return "MIG divides the GPU, and a part has no rate of its own in the facts"
    if measure == "allreduce":
        return _find_collective(figure, gpu, machine, matrix)
    if measure == "gemm-bf16":
        return _find_product(figure, gpu, matrix)
    generation = _number(machine.get("pcie_generation"))
    if generation is None:
        return "the PCIe generation of the slot is unknown: nvidia-smi reported none"
    floor = find_slot_floor(matrix, measure, gpu=gpu, generation=generation, lanes=_number(machine.get("pcie_lanes")))
    return floor or f"no floor is known for PCIe {generation}"


def _find_product(figure: Figure, gpu: str, matrix: Matrix) -> PerformanceFloor | str:
    edge = _number(figure.case.get("size"))
    floor = find_floor(matrix, "gemm-bf16", gpu=gpu, edge=edge)
    if floor is None and (above := find_floor(matrix, "gemm-bf16", gpu=gpu)) is not None:
        return f"the floor of {above.floor:g} {above.unit} holds from an edge of {above.edge_min} on"
    return floor or _unknown(gpu, matrix)


def _find_collective(figure: Figure, gpu: str, machine: Mapping[str, object], matrix: Matrix) -> PerformanceFloor | str:
    size = _number(figure.bytes) or _number(figure.case.get("size"))
    if size is None:
        return "the size of the message is not kept"
    count = _number(figure.case.get("workers")) or _number(machine.get("gpus"))
    generation = _number(machine.get("pcie_generation"))
    slot = f"{PCIE}-gen{generation}" if generation else PCIE
    # A card may be bridged to another, which nobody asked; what PCIe allows, it reaches all the same.
    topology = NVLINK if find_layout(matrix, gpu) is not None else slot
    floor = find_floor(matrix, "allreduce", gpu=gpu, topology=topology, gpus=count, message_bytes=size)
    if floor is not None:
        return floor
    above = find_floor(matrix, "allreduce", gpu=gpu, topology=topology, gpus=count)
    if above is not None:
        least = _spell(above.message_bytes_min or 0)
        return f"the floor of {above.floor:g} {above.unit} holds from {least} on, and the message has {_spell(size)}"
    return _unknown(gpu, matrix, f"{count} " if count else "", f" over {topology}")


def _unknown(gpu: str, matrix: Matrix, before: str = "", after: str = "") -> str:
    if not gpu_ids(matrix, gpu):
        return f"the facts do not know `{gpu}`"
    return f"no floor is known for {before}{gpu}{after}"


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value > 0 else None


def _spell(size_bytes: int) -> str:
    for factor, unit in _SIZES:
        if size_bytes >= factor:
            return f"{size_bytes / factor:g} {unit}"
    return f"{size_bytes} B"
