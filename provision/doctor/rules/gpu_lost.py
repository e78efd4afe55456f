"""A GPU no longer answers on the PCIe bus."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_address, name_gpu, own_seconds, quote_events, smi_gpus
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign
from provision.probe.parse.nvidia_smi import SmiGpu

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"Unable to determine the device handle for GPU",
    r"\bGPU is lost\b",
    r"^(?!.{0,80}\bnouveau\b).{0,300}?GPU has fallen off the bus",
    r"^(?!.{0,80}\bnouveau\b).{0,300}?fallen off the bus and is not responding",
)

_EXPECTED = "every GPU answers"


def examine(case: Case) -> Sign | None:
    """Look for devices that read as all ones, for GPUs nvidia-smi cannot read, and for the driver's complaint."""
    gone = [
        device.address
        for device in (*(case.look(lambda host: host.pci) or ()), *(case.look(lambda host: host.lspci) or ()))
        if device.revision == "ff" and (device.vendor in ("10de", "ffff"))
    ]
    gpus = smi_gpus(case)
    lost = [gpu for gpu in gpus if _is_silent(gpu) and (gpu.broken or any(_is_sound(other, gpu) for other in gpus))]
    events = case.events("fallen-off")
    quote = case.find(*SYMPTOMS)
    seconds = own_seconds(case, events)
    if gone or lost:
        named = dict.fromkeys([*(name_address(case, address) for address in gone), *(name_gpu(gpu) for gpu in lost)])
        return Sign(
            confidence="high",
            seen=(
                *(f"{address} reads as a device with revision ff" for address in dict.fromkeys(gone)),
                *(f"nvidia-smi cannot read {name_gpu(gpu)}" for gpu in lost),
                *quote_events(events),
            ),
            expected=_EXPECTED,
            subjects=tuple(named),
            seconds=seconds,
        )
    if quote is None and not events:
        return None
    is_told_by_kernel = bool(events) and case.look(lambda host: host.kernel_log) is not None
    addresses = dict.fromkeys(event.pci for event in events if event.pci)
    return Sign(
        confidence="high" if is_told_by_kernel else "medium",
        seen=quote_events(events) or quoted(quote),
        expected=_EXPECTED,
        subjects=tuple(name_address(case, address) for address in addresses),
        unseen=() if case.host is not None else ("what the kernel said before: `dmesg -T | grep -iE 'nvrm|aer|pcie'`",),
        seconds=seconds,
    )


def _is_silent(gpu: SmiGpu) -> bool:
    """Tell whether a GPU is listed and answers nothing that every kind of it can tell."""
    return gpu.temperature_c is None and gpu.memory_total_mib is None


def _is_sound(other: SmiGpu, gpu: SmiGpu) -> bool:
    """Tell whether another GPU of the same model answers what this one does not."""
    return other.temperature_c is not None and other.memory_total_mib is not None and gpu.name in (None, other.name)
