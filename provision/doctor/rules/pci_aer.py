"""The PCIe link of a GPU errs."""

from __future__ import annotations

from collections.abc import Sequence

from provision.doctor.case import Case
from provision.doctor.gpus import (
    is_own,
    name_address,
    name_gpu,
    nvidia_devices,
    own_seconds,
    quote_events,
    smi_gpus,
)
from provision.doctor.sign import Sign
from provision.probe.parse.kernel_log import KernelEvent

SYMPTOMS = (r"AER: .{0,40}(?:Fatal|Uncorrect\w{0,10}).{0,20} error", r"PCIe Bus Error: severity=Uncorrect")

_MINUTE_SECONDS = 60
_LIMIT = "doctor.aer-corrected"


def examine(case: Case) -> Sign | None:
    """Look for errors that could not be corrected, and for more corrected ones a minute than a sound link has."""
    relevant = _relevant(case)
    named = {fault.subject for fault in case.faults("gpu.pcie.aer")}
    severe = [
        event
        for event in case.events("aer-fatal", "aer-uncorrected")
        if (name_address(case, event.pci) in named if is_own(case, event) else _concerns(event, relevant))
    ]
    corrected = [event for event in case.events("aer-corrected") if _concerns(event, relevant)]
    limits = _limits(case)
    usual = min(limits.values(), default=case.matrix.limit(_LIMIT))
    storms = {}
    for pci in dict.fromkeys(event.pci for event in corrected):
        worst = _most_in_a_minute([event for event in corrected if event.pci == pci])
        if worst > limits.get(pci or "", usual):
            storms[pci] = worst
    if not severe and not storms:
        return None
    events = [*severe, *(event for event in corrected if event.pci in storms)]
    is_proved = bool(relevant) and any(is_own(case, event) for event in events)
    return Sign(
        confidence="high" if is_proved else "medium",
        seen=(
            *(f"{count} corrected errors within a minute at {pci or 'a device'}" for pci, count in storms.items()),
            *quote_events(severe or events[:1]),
            *_replays(case),
        ),
        expected=f"no uncorrected error, and at most {usual:g} corrected ones a minute",
        subjects=tuple(name_address(case, pci) for pci in dict.fromkeys(event.pci for event in events) if pci),
        unseen=() if relevant else ("whether the device is a GPU or a bridge above one: `lspci -tv`",),
        seconds=own_seconds(case, events),
    )


def _limits(case: Case) -> dict[str, float]:
    """Return address of a GPU → errors a minute that its link may have: a faster one has more of them."""
    known = {row.id: float(row.value) for row in case.matrix.rows("checks.toml", "limit")}
    return {gpu.pci: known.get(f"{_LIMIT}-gen{gpu.pcie_gen_max}", known[_LIMIT]) for gpu in smi_gpus(case)}


def _replays(case: Case) -> tuple[str, ...]:
    """Say which GPUs counted packets that had to be sent again; one reading tells no rate, so it only supports."""
    return tuple(
        f"{name_gpu(gpu)} counts {gpu.pcie_replays} packets sent again since its reset"
        for gpu in smi_gpus(case)
        if gpu.pcie_replays
    )


def _relevant(case: Case) -> frozenset[str]:
    """Return the GPUs and the bridges: an error is often reported by the port above the device."""
    gpus = {device.address for device in nvidia_devices(case)}
    if not gpus:
        return frozenset()
    devices = case.look(lambda host: host.pci) or ()
    return frozenset(gpus | {device.address for device in devices if device.class_code == "0604"})


def _concerns(event: KernelEvent, relevant: frozenset[str]) -> bool:
    return not relevant or event.pci is None or event.pci in relevant


def _most_in_a_minute(events: Sequence[KernelEvent]) -> int:
    times = sorted(event.seconds for event in events if event.seconds is not None)
    worst = first = 0
    for last, moment in enumerate(times):
        while moment - times[first] > _MINUTE_SECONDS:
            first += 1
        worst = max(worst, last - first + 1)
    return worst if times else len(events)
