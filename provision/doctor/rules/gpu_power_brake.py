"""The machine tells a GPU to draw less power."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_where
from provision.doctor.heat import is_hot, say_heat
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"HW Power Brake Slowdown\s{0,40}:\s{0,4}Active",
    r"clocks_(?:event|throttle)_reason_hw_power_brake_slowdown>Active<",
)

_EXPECTED = "no power brake"
_CAUSES = {"hw_thermal_slowdown", "hw_power_brake_slowdown"}
_UNSEEN = ("power supplies and power caps of the machine: `ipmitool sel list`",)


def examine(case: Case) -> Sign | None:
    """Look at the reasons for which clocks are held down right now.

    A hardware slowdown without a reason of its own is heat or this signal: only a cool GPU tells them apart.
    """
    hard = smi_where(case, lambda gpu: "hw_power_brake_slowdown" in gpu.throttle)
    soft = smi_where(
        case,
        lambda gpu: (
            "hw_slowdown" in gpu.throttle and not _CAUSES & set(gpu.throttle) and is_hot(gpu, case.matrix) is False
        ),
    )
    if hard or soft:
        return Sign(
            confidence="high" if hard else "medium",
            seen=tuple(
                f"{name_gpu(gpu)} is held down by {_reasons(gpu.throttle)}{say_heat(gpu)}" for gpu in hard or soft
            ),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in hard or soft),
            unseen=_UNSEEN,
        )
    return hint(case.find(*SYMPTOMS), expected=_EXPECTED, unseen=_UNSEEN)


def _reasons(throttle: tuple[str, ...]) -> str:
    return ", ".join(reason.replace("_", " ") for reason in throttle if "slowdown" in reason)
