"""The driver forgets a GPU whenever its last user leaves."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import model_of, name_gpu, smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"[Pp]ersistence mode (?:is )?(?:not enabled|disabled)", r"Persistence Mode\s{0,40}:\s{0,4}Disabled")

_EXPECTED = "persistence on"
_UNIT = "nvidia-persistenced"
_BY_SERVICE = (f"Start the service: `systemctl enable --now {_UNIT}`.",)
_BY_SETTING = (f"Until the next boot: `nvidia-smi -pm 1`; for good, install {_UNIT}.",)


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
        # One way is enough: the service where it is installed, the setting until the next boot where it is not.
        fix = () if unit is None else _BY_SERVICE if unit.is_installed else _BY_SETTING
        return Sign(
            confidence="high",
            seen=tuple(f"{name_gpu(gpu)} has persistence off" for gpu in off),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in off),
            fix=fix,
        )
    if smi is not None:
        return None
    return hint(case.find(*SYMPTOMS), expected=_EXPECTED, unseen=("whether nvidia-persistenced runs",))
