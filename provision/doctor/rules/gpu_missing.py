"""A GPU is on the PCI bus and the driver does not offer it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import is_in_container, name_address, nvidia_devices, own_seconds, quote_events
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"No devices were found",
    r"NVIDIA probe routine failed",
    r"None of the NVIDIA (?:devices|graphics adapters) were (?:probed|initialized)",
    r"nvidia: probe of .{0,20} failed with error",
    r"NVRM: Can't find an IRQ|nvidia_frontend_open: .{0,40}failed|probe routine was not called",
    r"NVRM: No NVIDIA GPU found",
    r"NVRM: No NVIDIA PCI devices found|NVRM: obtained ownership of the NVIDIA device|"
    r"NVRM: This can occur when another driver was loaded",
)

_EXPECTED = "nvidia-smi lists every GPU of the PCI bus"


def examine(case: Case) -> Sign | None:
    """Compare the PCI bus with nvidia-smi, or with the kernel module's own list where nvidia-smi does not answer."""
    quote = case.find(*SYMPTOMS)
    if is_in_container(case):
        return None
    events = case.events("probe-failed", "rm-init-failed")
    faults = case.faults("gpu.count/missing")
    if faults:
        names = {fault.subject for fault in faults}
        missing = [row for row in nvidia_devices(case) if name_address(case, row.address) in names]
        excluded = {gpu.pci for gpu in case.look(lambda host: host.driver_gpus) or () if gpu.is_excluded}
        related = [event for event in events if event.pci is None or event.pci in {row.address for row in missing}]
        return explain_faults(
            case,
            faults,
            expected=_EXPECTED,
            events=related,
            seen=(
                *(f"{row.address} is excluded by the driver's options" for row in missing if row.address in excluded),
                *(f"{row.address} has {_driver(row.driver)}" for row in missing if row.driver != "nvidia"),
            ),
            unseen=("why it did not start: `dmesg -T | grep -i nvrm`",) if not related else (),
        )
    if case.is_well("gpu.count"):
        return None
    # A start that failed has more causes than this one; that no device is left is the driver's own verdict.
    events = case.events("probe-failed")
    if events:
        return Sign(
            confidence="medium",
            seen=quote_events(events),
            expected=_EXPECTED,
            subjects=tuple(dict.fromkeys(event.pci for event in events if event.pci)),
            unseen=("the GPUs on the bus and those of the driver: `lspci -d 10de:`, `nvidia-smi -L`",),
            seconds=own_seconds(case, events),
        )
    return hint(
        quote,
        expected=_EXPECTED,
        unseen=("the GPUs on the bus: `lspci -d 10de:`", "why none started: `dmesg -T | grep -i nvrm`"),
    )


def _driver(name: str | None) -> str:
    return f"the driver {name}" if name else "no driver"
