"""The driver says what a GPU needs now."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.gpus import is_own, name_address, name_gpu, own_seconds, quote_events, smi_gpus
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids
from provision.probe.parse.kernel_log import KernelEvent

SYMPTOMS = (r"GPU recovery action changed from",)

_CHANGED = re.compile(r"changed from [^(]{0,10}\(([^)]{1,40})\) to [^(]{0,10}\(([^)]{1,40})")
_IDLE = ("none", "n/a")
_STEPS = (
    ("drain and reset", "Drain the machine, then reset the GPU with `nvidia-smi --gpu-reset -i INDEX`."),
    ("drain p2p", "End the programs that use this GPU's NVLinks from other GPUs; no reset is needed."),
    ("imex", "Recover the IMEX domain: end its jobs on all nodes and restart `nvidia-imex` there."),
    ("bus reset", "Reset the GPU's PCIe bus: `nvidia-smi --gpu-reset -i INDEX`, and reboot if that is refused."),
    ("reboot", "Drain the machine and reboot it."),
    ("reset", "End the programs on this GPU and reset it with `nvidia-smi --gpu-reset -i INDEX`."),
)


def examine(case: Case) -> Sign | None:
    """Take the last action the driver asked for on each GPU; nvidia-smi's own field comes before the log."""
    faults = {fault.subject: fault.said for fault in case.faults("gpu.recovery_action")}
    asked = {gpu.pci: faults[name_gpu(gpu)].partition(": ")[2] for gpu in smi_gpus(case) if name_gpu(gpu) in faults}
    settled = {gpu.pci for gpu in smi_gpus(case) if gpu.recovery_action and gpu.pci not in asked}
    events = tuple(event for event in case.xid(154) if event.pci not in settled)
    latest: dict[str | None, KernelEvent] = {event.pci: event for event in events}
    if events and not any(_CHANGED.search(event.text) for event in events) and not asked:
        return explain_xids(case, 154, unseen=("what the line says after `changed from`",))
    open_events = [event for event in latest.values() if _action(event).lower() not in ("", *_IDLE)]
    wanted = {event.pci: _action(event) for event in open_events if event.pci not in asked}
    actions = dict.fromkeys((*asked.values(), *wanted.values()))
    if not actions:
        return None
    fields = tuple(f"nvidia-smi asks for {action} on {name_address(case, pci)}" for pci, action in asked.items())
    named = dict.fromkeys((*asked, *(pci for pci in wanted if pci is not None)))
    return Sign(
        confidence="high" if asked or any(is_own(case, event) for event in open_events) else "medium",
        seen=(*fields, *quote_events(open_events)),
        expected="no recovery action asked for",
        subjects=tuple(name_address(case, pci) for pci in named),
        fix=tuple(dict.fromkeys(_step(action) for action in actions)),
        seconds=own_seconds(case, open_events),
    )


def _action(event: KernelEvent) -> str:
    match = _CHANGED.search(event.text)
    return match[2].strip() if match is not None else ""


def _step(action: str) -> str:
    lowered = action.lower()
    return next((step for word, step in _STEPS if word in lowered), f"Do what the driver asks for: {action}.")
