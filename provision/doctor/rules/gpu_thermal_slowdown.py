"""A GPU slows itself down because it is too hot."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_where
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"(?:HW|SW) Thermal Slowdown\s{0,40}:\s{0,4}Active",
    r"clocks_(?:event|throttle)_reason_(?:hw|sw)_thermal_slowdown>Active<",
)

_EXPECTED = "no slowdown for heat"
_UNSEEN = ("airflow, fans and inlet temperature of the machine: `ipmitool sdr`",)


def examine(case: Case) -> Sign | None:
    """Look at the reasons for which clocks are held down right now."""
    hard = smi_where(case, lambda gpu: "hw_thermal_slowdown" in gpu.throttle)
    soft = smi_where(case, lambda gpu: "sw_thermal_slowdown" in gpu.throttle)
    if hard or soft:
        return Sign(
            confidence="high" if hard else "medium",
            seen=tuple(
                f"{name_gpu(gpu)} is held down by {_reasons(gpu.throttle)}{_heat(gpu.temperature_c)}"
                for gpu in hard or soft
            ),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in hard or soft),
            unseen=_UNSEEN,
        )
    return hint(case.find(*SYMPTOMS), expected=_EXPECTED, unseen=_UNSEEN)


def _reasons(throttle: tuple[str, ...]) -> str:
    return ", ".join(reason.replace("_", " ") for reason in throttle if "slowdown" in reason)


def _heat(celsius: int | None) -> str:
    return f" at {celsius} C" if celsius is not None else ""
