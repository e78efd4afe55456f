"""A GPU may draw less power than it was built for."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_where
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"SW Power Cap\s{0,40}:\s{0,4}Active", r"clocks_(?:event|throttle)_reason_sw_power_cap>Active<")

_EXPECTED = "the default power limit"
_TOLERANCE_W = 1


def examine(case: Case) -> Sign | None:
    """Compare the limit with the default; a cap at the default limit is how a busy GPU works."""
    lowered = smi_where(
        case,
        lambda gpu: (
            gpu.power_limit_w is not None
            and gpu.power_default_w is not None
            and gpu.power_limit_w < gpu.power_default_w - _TOLERANCE_W
        ),
    )
    if lowered:
        is_felt = any("sw_power_cap" in gpu.throttle for gpu in lowered)
        return Sign(
            confidence="high" if is_felt else "medium",
            seen=tuple(
                f"{name_gpu(gpu)} is limited to {gpu.power_limit_w:g} W, default {gpu.power_default_w:g} W"
                + (", and held down by it" if "sw_power_cap" in gpu.throttle else "")
                for gpu in lowered
            ),
            expected=_EXPECTED,
            subjects=tuple(name_gpu(gpu) for gpu in lowered),
        )
    if case.look(lambda host: host.smi) is not None:
        return None
    return hint(
        case.find(*SYMPTOMS),
        confidence="low",
        expected=_EXPECTED,
        unseen=("the limit and the default: `nvidia-smi -q -d POWER`",),
    )
