"""The driver forgets a GPU whenever its last user leaves."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

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
    """Look at the mode; on a desk the screen keeps the driver awake, so that it matters on servers."""
    faults = case.faults("gpu.persistence")
    if faults:
        unit = (case.look(lambda host: host.units) or {}).get(_UNIT)
        fix = (_NOW, _INSTALL) if unit is not None and not unit.is_installed else ()
        return explain_faults(case, faults, expected=_EXPECTED, fix=fix)
    if case.look(lambda host: host.smi) is not None:
        return None
    return hint(case.find(*SYMPTOMS), expected=_EXPECTED, unseen=("whether nvidia-persistenced runs",))
