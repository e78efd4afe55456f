"""A GPU slows itself down because it is too hot."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

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
_LIMIT = "gpu.temp.active"
_EXPECTED = "no slowdown for heat"
_UNSEEN = ("airflow, fans and inlet temperature of the machine: `ipmitool sdr`",)
_HEAT = "how hot the GPU is, which tells heat from a power brake: `nvidia-smi -q -d TEMPERATURE,PERFORMANCE`"


def examine(case: Case) -> Sign | None:
    """Look at the reasons for which clocks are held down right now, and at GPUs that are about to be."""
    held = case.faults("gpu.throttle/heat", "gpu.throttle/unexplained")
    if held:
        unseen = (_HEAT, *_UNSEEN) if any(fault.kind == "unexplained" for fault in held) else _UNSEEN
        return explain_faults(case, held, expected=_EXPECTED, unseen=unseen)
    if near := case.faults("gpu.temp"):
        return explain_faults(case, near, expected=f"at most {case.matrix.limit(_LIMIT):.0f} C at work", unseen=_UNSEEN)
    if case.find(*_TOLD) is None and case.find(*_POWER) is None:
        return hint(case.find(*_UNTOLD), expected=_EXPECTED, unseen=(_HEAT, *_UNSEEN))
    return hint(case.find(*_TOLD), expected=_EXPECTED, unseen=_UNSEEN)
