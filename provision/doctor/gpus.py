"""What rules about GPUs share: which there are, what they are called, which model they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from provision.doctor.case import Case
from provision.matrix.model import Gpu
from provision.probe import gpus
from provision.probe.gpus import name_gpu
from provision.probe.parse.kernel_log import KernelEvent
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.pci import PciDevice

__all__ = [
    "gpu_addresses",
    "is_in_container",
    "is_own",
    "model_of",
    "name_address",
    "name_gpu",
    "nvidia_devices",
    "own_seconds",
    "quote_events",
    "smi_gpus",
    "smi_where",
]

_EVENTS_QUOTED = 3


def smi_gpus(case: Case) -> tuple[SmiGpu, ...]:
    """Return the GPUs nvidia-smi lists, none where it did not answer."""
    smi = case.look(lambda host: host.smi)
    return smi.gpus if smi is not None else ()


def smi_where(case: Case, is_faulty: Callable[[SmiGpu], bool]) -> tuple[SmiGpu, ...]:
    """Return the GPUs of nvidia-smi for which something holds."""
    return tuple(gpu for gpu in smi_gpus(case) if is_faulty(gpu))


def nvidia_devices(case: Case) -> tuple[PciDevice, ...]:
    """Return the NVIDIA GPUs on the PCI bus that this host drives itself, virtual functions left out."""
    devices = case.look(lambda host: host.pci) or ()
    return tuple(
        device
        for device in devices
        if device.is_nvidia_gpu and not device.is_virtual_function and device.driver not in ("vfio-pci", "pci-stub")
    )


def gpu_addresses(case: Case) -> frozenset[str]:
    """Return the addresses of all GPUs that any probe knows."""
    return case.look(gpus.gpu_addresses) or frozenset()


def name_address(case: Case, address: str | None) -> str:
    """Return how a person finds the device at an address from a log."""
    return gpus.name_address(case.host, address)


def model_of(case: Case, name: str | None, device: str | None = None) -> Gpu | None:
    """Return the facts about a GPU, by its name or its PCI device id; ``None`` for one they do not know."""
    if device is None:
        return next(iter(gpus.find_models(case.matrix, name=name)), None)
    listed = PciDevice(address="", class_code="0302", vendor="10de", device=device, name=name)
    return next(iter(gpus.find_models(case.matrix, device=listed)), None)


def is_in_container(case: Case) -> bool:
    """Tell whether the target is a container, which sees the host's devices but not its modules."""
    virtualization = case.look(lambda host: host.virtualization)
    return virtualization is not None and virtualization.is_container


def is_own(case: Case, event: KernelEvent) -> bool:
    """Tell whether an event stands in the target's own kernel log, and not in text that somebody pasted."""
    log = case.look(lambda host: host.kernel_log)
    return log is not None and event in case.keep("own events", lambda: frozenset(log.events))


def own_seconds(case: Case, events: Iterable[KernelEvent]) -> float | None:
    """Return when the first of some events happened, if their clock is the one other findings of the case use."""
    for event in events:
        if event.seconds is not None and (case.host is None or is_own(case, event)):
            return event.seconds
    return None


def quote_events(events: Iterable[KernelEvent]) -> tuple[str, ...]:
    """Return the first few different lines of some events in quotation marks, and how many more there are."""
    found = tuple(events)
    lines = tuple(dict.fromkeys(event.text for event in found))
    more = len(found) - len(lines[:_EVENTS_QUOTED])
    quoted = tuple(f'"{line}"' for line in lines[:_EVENTS_QUOTED])
    return (*quoted, f"{more} more such lines") if more > 0 else quoted
