"""The driver forgets a GPU whenever its last user leaves."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import model_of, name_gpu, smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"[Pp]ersistence mode (?:is )?(?:not enabled|disabled)", r"Persistence Mode\s{0,40}:\s{0,4}Disabled")

_EXPECTED = "persistence on"


def examine(case: Case) -> Sign | None:
    """Look at the mode of GPUs made for servers; on a desk the screen keeps the driver awake."""
    smi = case.look(lambda host: host.smi)
    off = [
        gpu
        for gpu in smi_gpus(case)
        if gpu.persistence is False
        and not any("G" in process.kind for process in gpu.processes)
        and (model := model_of(case, gpu.name)) is not None
        and model.segment == "datacenter"
    ]
    if off:
        return Sign(
            confidence="high",
            seen=tuple(f"{name_gpu(gpu)} has persistence off" for gpu in off),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in off),
        )
    if smi is not None:
        return None
    return hint(case.find(*SYMPTOMS), expected=_EXPECTED, unseen=("whether nvidia-persistenced runs",))
