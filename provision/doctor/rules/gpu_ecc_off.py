"""ECC is off where it should be on, or waits for a reset."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (r"\bECC (?:mode )?is (?:not enabled|disabled)", r"<current_ecc>Disabled<")

# Boards of these families are sold with ECC off, or without it.
_WORKSTATION = r"\b(?:GeForce|Quadro|TITAN|RTX (?:A[0-9]{4}|PRO|[0-9]{4}))\b"
_EXPECTED = "ECC on and nothing pending"


def examine(case: Case) -> Sign | None:
    """Compare what is set with what is active, and the GPUs of a machine with each other."""
    faults = case.faults("gpu.ecc.mode")
    if faults:
        is_sure = any(fault.certainty == "high" for fault in faults)
        unseen = () if is_sure else ("whether somebody switched it off on purpose",)
        return explain_faults(case, faults, expected=_EXPECTED, unseen=unseen)
    if case.look(lambda host: host.smi) is not None or case.find(_WORKSTATION):
        return None
    return hint(
        case.find(*SYMPTOMS),
        confidence="low",
        expected=_EXPECTED,
        unseen=("whether somebody switched it off on purpose, and what is pending: `nvidia-smi -q -d ECC`",),
    )
