"""Copies between host and GPU are as fast as the slot allows."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.query import find_slot_floor
from provision.probe.output import Unreadable
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.records import NOTHING
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.verify.work import name_index, name_worker

__all__ = ["check"]

_TESTS = {"h2d": "host_to_device_memcpy_ce", "d2h": "device_to_host_memcpy_ce"}
_WORDS = {"h2d": "to the GPU", "d2h": "from the GPU"}


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge each GPU by the generation and width of its slot; a virtual machine's shortfall is told, not failed."""
    figures = _measure(host)
    gpus = host.smi.gpus
    smallest: dict[str, float] = {}
    faults: dict[str, list[str]] = {}
    shoulds: dict[str, None] = {}
    for (index, measure), (name, value) in figures.items():
        key = f"{measure}_gb_s"
        smallest[key] = min(value, smallest.get(key, value))
        gpu = gpus[index] if index < len(gpus) else None
        generation = gpu.pcie_gen_max if gpu is not None else None
        lanes = _lanes(gpu, expected)
        row = find_slot_floor(matrix, measure, gpu=gpu.name if gpu else None, generation=generation, lanes=lanes)
        if row is None:
            return unknown(
                f"{name} copies {value:.1f} GB/s {_WORDS[measure]}, "
                f"and no floor is known for PCIe {generation or 'of no known generation'}"
            )
        if value < row.floor:
            faults.setdefault(name, []).append(f"copies {value:.1f} GB/s {_WORDS[measure]}{_narrow(gpu)}")
            shoulds[f"{row.floor:g} GB/s or more on {lanes} lanes of PCIe {generation}"] = None
    said = "; ".join(f"{name} {' and '.join(what)}" for name, what in faults.items())
    if not faults:
        return passed("every GPU copies " + _range(smallest), figures=smallest)
    should = ", ".join(shoulds)
    if _is_virtual(host):
        return passed(f"{said}, where bare metal reaches {should}; virtual machines vary", figures=smallest)
    return failed(said, should, subjects=faults, figures=smallest)


def _measure(host: Snapshot) -> dict[tuple[int, str], tuple[str, float]]:
    """Return (GPU, measure) → (its name, GB/s), of nvbandwidth, else of PyTorch."""
    try:
        tests = {test.name: test.cells for test in host.nvbandwidth}
    except Unreadable as error:
        reason = error
    else:
        found = {
            (column, measure): (name_index(host, column), value)
            for measure, test in _TESTS.items()
            for (_, column), value in tests.get(test, NOTHING).items()
            if value is not None
        }
        if found:
            return found
        reason = Unreadable("nvbandwidth measured no copy between host and GPU", probe="nvbandwidth")
    try:
        workers = host.torch_work.gpus
    except Unreadable:
        raise reason from None
    found = {
        (_place(host, worker.uuid, worker.gpu), measure): (name_worker(host, worker), worker.figures[f"{measure}_gb_s"])
        for worker in workers
        for measure in _TESTS
        if f"{measure}_gb_s" in worker.figures
    }
    if not found:
        raise reason
    return found


def _place(host: Snapshot, uuid: str | None, index: int) -> int:
    places = [place for place, gpu in enumerate(host.smi.gpus) if uuid and gpu.uuid == uuid]
    return places[0] if places else index


def _lanes(gpu: SmiGpu | None, expected: Expectation) -> int:
    if expected.pcie_width:
        return expected.pcie_width
    return (gpu.pcie_width_max if gpu is not None else None) or 16


def _narrow(gpu: SmiGpu | None) -> str:
    if gpu is None or gpu.pcie_width_current is None or gpu.pcie_width_max is None:
        return ""
    narrow = gpu.pcie_width_current < gpu.pcie_width_max
    return f" (on {gpu.pcie_width_current} of {gpu.pcie_width_max} lanes)" if narrow else ""


def _is_virtual(host: Snapshot) -> bool:
    try:
        return host.virtualization.is_virtual_machine
    except Unreadable:
        return False


def _range(smallest: dict[str, float]) -> str:
    return (
        " and ".join(f"{value:.1f} GB/s {_WORDS[key.removesuffix('_gb_s')]}" for key, value in smallest.items())
        + " or more"
    )
