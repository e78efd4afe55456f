"""A GPU slows itself down because it is too hot."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_where
from provision.doctor.heat import is_hot, say_heat
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.probe.parse.nvidia_smi import SmiGpu

__all__ = ["SYMPTOMS", "examine"]

_TOLD = (
    r"(?:HW|SW) Thermal Slowdown\s{0,40}:\s{0,4}Active",
    r"clocks_(?:event|throttle)_reason_(?:hw|sw)_thermal_slowdown>Active<",
)
_UNTOLD = (
    r"HW Slowdown\s{0,40}:\s{0,4}Active",
    r"clocks_(?:event|throttle)_reason_hw_slowdown>Active<",
)
SYMPTOMS = (*_TOLD, *_UNTOLD)

_POWER = (
    r"HW Power Brake Slowdown\s{0,40}:\s{0,4}Active",
    r"clocks_(?:event|throttle)_reason_hw_power_brake_slowdown>Active<",
)
_REASONS = {"hw_thermal_slowdown", "hw_power_brake_slowdown"}
_LIMIT = "gpu.temp.active"
_EXPECTED = "no slowdown for heat"
_UNSEEN = ("airflow, fans and inlet temperature of the machine: `ipmitool sdr`",)
_HEAT = "how hot the GPU is, which tells heat from a power brake: `nvidia-smi -q -d TEMPERATURE,PERFORMANCE`"


def examine(case: Case) -> Sign | None:
    """Look at the reasons for which clocks are held down right now, and at GPUs that are about to be."""
    hard = smi_where(case, lambda gpu: "hw_thermal_slowdown" in gpu.throttle)
    soft = smi_where(case, lambda gpu: "sw_thermal_slowdown" in gpu.throttle or _is_heat(case, gpu))
    if hard or soft:
        return Sign(
            confidence="high" if hard else "medium",
            seen=tuple(
                f"{name_gpu(gpu)} is held down by {_reasons(gpu.throttle)}{say_heat(gpu)}" for gpu in hard or soft
            ),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in hard or soft),
            unseen=_UNSEEN if all(is_hot(gpu, case.matrix) is not None for gpu in hard or soft) else (_HEAT, *_UNSEEN),
        )
    if near := smi_where(case, lambda gpu: _is_near(case, gpu)):
        return Sign(
            confidence="low",
            seen=tuple(f"{name_gpu(gpu)} is{say_heat(gpu)}, and not slowed down yet" for gpu in near),
            expected=f"at most {case.matrix.limit(_LIMIT):.0f} C at work",
            subjects=tuple(name_gpu(gpu) for gpu in near),
            unseen=_UNSEEN,
        )
    if case.find(*_TOLD) is None and case.find(*_POWER) is None:
        return hint(case.find(*_UNTOLD), expected=_EXPECTED, unseen=(_HEAT, *_UNSEEN))
    return hint(case.find(*_TOLD), expected=_EXPECTED, unseen=_UNSEEN)


def _is_heat(case: Case, gpu: SmiGpu) -> bool:
    """Tell whether a hardware slowdown that names no reason is one for heat: a cool GPU has another."""
    return "hw_slowdown" in gpu.throttle and not _REASONS & set(gpu.throttle) and is_hot(gpu, case.matrix) is not False


def _is_near(case: Case, gpu: SmiGpu) -> bool:
    is_above = gpu.temperature_c is not None and gpu.temperature_c > case.matrix.limit(_LIMIT)
    return is_above or is_hot(gpu, case.matrix) is True


def _reasons(throttle: tuple[str, ...]) -> str:
    return ", ".join(reason.replace("_", " ") for reason in throttle if "slowdown" in reason)
