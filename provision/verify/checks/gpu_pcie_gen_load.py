"""Under load every GPU reaches the PCIe generation that card and slot share."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.frameworks import WorkOnGpu
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, judge_gpus, name_gpu
from provision.verify.outcome import Outcome, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the generation seen while copies ran; at rest it drops by itself."""
    del expected, matrix
    work = host.torch_work
    if work.error is not None:
        return unknown(f"the copies did not begin: {work.error}")
    gpus = host.smi.gpus
    readings: list[FieldReading] = []
    generations: set[int] = set()
    for place, gpu in enumerate(gpus):
        seen = _seen(work.gpus, gpu, place)
        best = min(filter(None, (gpu.pcie_gen_device_max, gpu.pcie_gen_host_max)), default=gpu.pcie_gen_max)
        if seen is None:
            return unknown(f"nobody read the PCIe generation of {name_gpu(gpu)} while it worked")
        absence = "unsupported" if "pcie_gen_max" in gpu.unsupported else "absent"
        is_fine = None if best is None else seen >= best
        readings.append(FieldReading(gpu, is_fine, f"ran at generation {seen} of {best} under load", absence))
        generations.add(seen)
    return judge_gpus(
        readings,
        fine=f"generation {' and '.join(str(generation) for generation in sorted(generations))} under load",
        expected="the highest that card and slot share",
    )


def _seen(worked: tuple[WorkOnGpu, ...], gpu: SmiGpu, place: int) -> int | None:
    """Return the generation under load; GPUs are matched by UUID, as frameworks may count them in another order."""
    by_uuid = {work.uuid: work for work in worked if work.uuid}
    by_place = {work.gpu: work for work in worked}
    work = by_uuid.get(gpu.uuid) if by_uuid and gpu.uuid else by_place.get(place)
    value = work.figures.get("pcie_gen_under_load") if work is not None else None
    return None if value is None else int(value)
