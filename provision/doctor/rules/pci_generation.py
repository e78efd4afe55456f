"""A GPU that is at work uses a slower PCIe rate than it could."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"LnkSta:\s{0,8}Speed [\d.]{1,5}GT/s \(downgraded\)",)

_EXPECTED = "the best generation that device and host share, under load"


def examine(case: Case) -> Sign | None:
    """Compare the rate in use with the best of device and host, on GPUs at work only: idle ones save power."""
    busy = case.matrix.limit("doctor.busy")
    measured = _under_load(case)
    slow = {}
    for index, gpu in enumerate(smi_gpus(case)):
        best = gpu.pcie_gen_max
        at_work = measured.get(index)
        if at_work is None and gpu.utilization_percent is not None and gpu.utilization_percent >= busy:
            at_work = gpu.pcie_gen_current
        if best is not None and at_work is not None and at_work < best:
            slow[name_gpu(gpu)] = (at_work, best)
    if not slow:
        if smi_gpus(case):
            return None
        return hint(
            case.find(*SYMPTOMS),
            confidence="low",
            expected=_EXPECTED,
            unseen=("whether the GPU was at work when this was read: at idle a low rate is normal",),
        )
    return Sign(
        confidence="high" if measured else "medium",
        seen=tuple(f"{name} is at work at PCIe generation {now:g} of {best}" for name, (now, best) in slow.items()),
        expected=_EXPECTED,
        subjects=tuple(slow),
        unseen=() if measured else ("the rate during copies: run `nvbandwidth` and look again",),
    )


def _under_load(case: Case) -> dict[int, float]:
    """Return GPU → the generation seen while it was made to work, where that was tried."""
    work = case.look(lambda host: host.torch_work)
    found: dict[int, float] = {}
    for gpu in work.gpus if work is not None else ():
        generation = gpu.figures.get("pcie_gen_under_load")
        if generation:
            found[gpu.gpu] = generation
    return found
