"""A GPU no longer answers on the PCIe bus."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import name_address, own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"Unable to determine the device handle for GPU",
    r"\bGPU is lost\b",
    r"^(?!.{0,80}\bnouveau\b).{0,300}?GPU has fallen off the bus",
    r"^(?!.{0,80}\bnouveau\b).{0,300}?fallen off the bus and is not responding",
    r"NVML_ERROR_GPU_IS_LOST",
    r"NVRM: A GPU crash dump has been created",
)

_EXPECTED = "every GPU answers"


def examine(case: Case) -> Sign | None:
    """Take the GPUs that tell nothing or do not answer on the bus, or the driver's complaint."""
    events = case.events("fallen-off")
    quote = case.find(*SYMPTOMS)
    seconds = own_seconds(case, events)
    faults = case.faults("gpu.lost", "gpu.pci.count/fallen")
    sure = [fault for fault in faults if fault.certainty != "low"]
    if sure or (faults and quote is None and not events):
        return explain_faults(case, sure or faults, expected=_EXPECTED, events=events)
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
