"""The machine has no address space for the GPU's memory window."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import gpu_addresses, name_address, own_seconds, quote_events, smi_gpus
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign
from provision.probe.parse.kernel_log import KernelEvent

SYMPTOMS = (
    r"PCI I/O region assigned to your NVIDIA device is invalid",
    r"\bBAR\d is 0M\b",
    r"NVRM: (?:No address space to allocate resized BAR|FATAL: Failed to re-allocate BAR|"
    r"Fatal Error while .{0,20}resize PCIe BAR)",
)

_EXPECTED = "every memory region of the GPU has an address"


def examine(case: Case) -> Sign | None:
    """Look for regions the kernel could not place, and for GPUs that show a region without a size."""
    working = {gpu.pci for gpu in smi_gpus(case) if gpu.bar1_total_mib}
    known = gpu_addresses(case)
    events = tuple(event for event in case.events("bar-unassigned") if _is_of_gpu(event, known))
    events = tuple(event for event in events if event.pci not in working)
    unplaced = {
        device.address
        for device in case.look(lambda host: host.lspci) or ()
        if device.is_nvidia_gpu and "0" in device.bar_sizes and device.address not in working
    }
    unplaced |= {gpu.pci for gpu in smi_gpus(case) if gpu.bar1_total_mib == 0}
    addresses = dict.fromkeys((*sorted(unplaced), *(event.pci for event in events if event.pci)))
    if unplaced or (events and known):
        regions = (f"{address} has a memory region without an address" for address in sorted(unplaced))
        return Sign(
            confidence="high",
            seen=(*regions, *quote_events(events)),
            expected=_EXPECTED,
            subjects=tuple(name_address(case, address) for address in addresses),
            seconds=own_seconds(case, events),
        )
    quote = case.find(*SYMPTOMS)
    if (quote is None or working) and not events:
        return None
    is_named = quote is not None or any("NVRM" in event.text for event in events)
    return Sign(
        confidence="medium" if is_named else "low",
        seen=quote_events(events) or quoted(quote),
        expected=_EXPECTED,
        subjects=tuple(addresses),
        unseen=("what the device is and which regions it has: `lspci -vv -d 10de:`",),
        seconds=own_seconds(case, events),
    )


def _is_of_gpu(event: KernelEvent, known: frozenset[str]) -> bool:
    return not known or event.pci is None or event.pci in known or "NVRM" in event.text
