"""The driver forgets a GPU whenever its last user leaves."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import model_of, name_gpu, smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"[Pp]ersistence mode (?:is )?(?:not enabled|disabled)",
    r"Persistence Mode\s{0,40}:\s{0,4}Disabled",
    r"first (?:CUDA |GPU )?(?:call|use|context|initiali[sz]ation)\b.{0,40}(?:slow|takes|took|[0-9] ?s(?:ec|$|\b))",
    r"\bnvidia-smi\b.{0,30}(?:takes|took|needs) (?:about )?[0-9]{1,3} ?s(?:ec|$|\b)",
)

_EXPECTED = "persistence on"
_UNIT = "nvidia-persistenced"
_NOW = "Switch it on, until the driver is loaded anew: `nvidia-smi -pm 1`."
_INSTALL = f"For good, install {_UNIT}."


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
        units = case.look(lambda host: host.units) or {}
        unit = units.get(_UNIT)
        return Sign(
            confidence="high",
            seen=tuple(f"{name_gpu(gpu)} has persistence off" for gpu in off),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in off),
            fix=(_NOW, _INSTALL) if unit is not None and not unit.is_installed else (),
        )
    if smi is not None:
        return None
    return hint(case.find(*SYMPTOMS), expected=_EXPECTED, unseen=("whether nvidia-persistenced runs",))
