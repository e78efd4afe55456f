"""A repair of a GPU's memory waits for a reset."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_gpu, smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"\bPending\s{0,40}:\s{0,4}Yes\b",
    r"<remapped_row_pending>Yes<",
    # A help text says `if a row remap is pending`.
    r"^(?!.{0,200}\b(?:if|whether)\b).{0,200}?\b(?:row remap|page retirement) (?:that )?is pending\b",
)

_EXPECTED = "nothing waits for a reset"
_FIELDS = {
    "remap_pending": "a row remap",
    "retired_pending": "a page retirement",
    "channel_repair_pending": "a channel repair",
    "tpc_repair_pending": "a processing-cluster repair",
}


def examine(case: Case) -> Sign | None:
    """Ask each GPU for each of the repairs that a reset completes."""
    waiting = [(gpu, what) for gpu in smi_gpus(case) for field, what in _FIELDS.items() if getattr(gpu, field) is True]
    if waiting:
        return Sign(
            confidence="high",
            seen=tuple(f"{name_gpu(gpu)}: {what} waits for a reset" for gpu, what in waiting),
            expected=_EXPECTED,
            subjects=tuple(dict.fromkeys(name_gpu(gpu) for gpu, _ in waiting)),
        )
    if case.look(lambda host: host.smi) is not None:
        return None
    return hint(case.find(*SYMPTOMS), expected=_EXPECTED, unseen=("which GPU it is",))
