"""ECC is off where it should be on, or waits for a reset."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import model_of, name_gpu, smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"\bECC (?:mode )?is (?:not enabled|disabled)", r"<current_ecc>Disabled<")

# Boards of these families are sold with ECC off, or without it.
_WORKSTATION = r"\b(?:GeForce|Quadro|TITAN|RTX (?:A[0-9]{4}|PRO|[0-9]{4}))\b"
_EXPECTED = "ECC on and nothing pending"


def examine(case: Case) -> Sign | None:
    """Compare what is set with what is active, and the GPUs of a machine with each other."""
    gpus = [gpu for gpu in smi_gpus(case) if gpu.ecc_current is not None]
    waiting = [gpu for gpu in gpus if gpu.ecc_pending is not None and gpu.ecc_pending != gpu.ecc_current]
    off = [gpu for gpu in gpus if not gpu.ecc_current and gpu not in waiting]
    is_uneven = any(gpu.ecc_current for gpu in gpus)
    if not is_uneven:
        off = [gpu for gpu in off if (model := model_of(case, gpu.name)) is not None and model.segment == "datacenter"]
    if not waiting and not off:
        if case.look(lambda host: host.smi) is not None:
            return None
        if case.find(_WORKSTATION):
            return None
        return hint(
            case.find(*SYMPTOMS),
            confidence="low",
            expected=_EXPECTED,
            unseen=("whether somebody switched it off on purpose, and what is pending: `nvidia-smi -q -d ECC`",),
        )
    words = {True: "on", False: "off"}
    return Sign(
        confidence="high" if waiting or is_uneven else "low",
        seen=(
            *(
                f"{name_gpu(gpu)} has ECC {words[bool(gpu.ecc_current)]}, {words[bool(gpu.ecc_pending)]} after a reset"
                for gpu in waiting
            ),
            *(f"{name_gpu(gpu)} has ECC off" + (", others have it on" if is_uneven else "") for gpu in off),
        ),
        expected=_EXPECTED,
        subjects=tuple(name_gpu(gpu) for gpu in (*waiting, *off)),
        unseen=() if waiting or is_uneven else ("whether somebody switched it off on purpose",),
    )
