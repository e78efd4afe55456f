"""Modes of a GPU that a driver switches on or off and that take a reset or a reboot to change: ECC, MIG."""

from __future__ import annotations

from collections.abc import Sequence

from provision.probe.parse.nvidia_smi import SmiGpu
from provision.verify.gpus import FieldReading, judge_gpus, read_field
from provision.verify.outcome import Outcome

__all__ = ["judge_mode"]


def judge_mode(gpus: Sequence[SmiGpu], mode: str, wanted: bool | None, *, after: str) -> Outcome:
    """Compare what a mode is, what it will be, and what was planned; without a plan, the first two.

    Args:
        gpus: All GPUs of the host.
        mode: ``ECC`` or ``MIG``; its fields in ``SmiGpu`` end with ``_current`` and ``_pending``.
        wanted: The plan.
        after: What a pending mode waits for, ``reboot`` or ``reset``.
    """
    current, pending = f"{mode.lower()}_current", f"{mode.lower()}_pending"
    having = {gpu.name for gpu in gpus if getattr(gpu, current) is not None}

    def read(gpu: SmiGpu) -> FieldReading:
        is_on, absence = read_field(gpu, current)
        if is_on is None:
            if absence == "unsupported" and wanted is not None and (wanted or gpu.name not in having):
                return FieldReading(gpu, not wanted, f"has no {mode}")
            return FieldReading(gpu, None, "", absence)
        will_be, silence = read_field(gpu, pending)
        if wanted is not None and is_on != wanted:
            later = f", {_word(will_be)} after the next {after}" if will_be not in (None, is_on) else ""
            return FieldReading(gpu, False, f"has {mode} {_word(is_on)}{later}")
        if will_be is None:
            return FieldReading(gpu, None, "", "absent" if silence == "unsupported" else silence, pending)
        fault = f"has {mode} {_word(is_on)}, and {_word(will_be)} after the next {after}"
        return FieldReading(gpu, will_be == is_on, fault)

    words = sorted({_word(getattr(gpu, current)) for gpu in gpus if getattr(gpu, current) is not None})
    return judge_gpus(
        [read(gpu) for gpu in gpus],
        fine=f"{mode} is {' and '.join(words)}" if words else f"no GPU has {mode}, as planned",
        expected=f"{mode} {_word(wanted)}" if wanted is not None else f"one mode now and after the next {after}",
    )


def _word(is_on: bool) -> str:
    return "on" if is_on else "off"
