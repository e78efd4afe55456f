"""The IOMMU translates what GPUs send each other, on a machine where nothing needs it."""

from __future__ import annotations

from provision.doctor.case import Case, Quote
from provision.doctor.gpus import gpu_addresses
from provision.doctor.hint import hint
from provision.doctor.measured import find_slow_run
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.records import replace
from provision.signals.signal import SKIP

_PARAMETERS = r"\b(?:intel|amd)_iommu=(?:on|force)"
_FAULTS = (
    r"DMAR: \[?DMA (?:Read|Write).{0,80}fault addr",
    r"AMD-Vi: Event logged \[IO_PAGE_FAULT",
)
SYMPTOMS = (_PARAMETERS, *_FAULTS)

_PASSING = ("iommu=pt", "iommu=off", "iommu.passthrough=1")
_EXPECTED = "the IOMMU off, or `iommu=pt` on the kernel's command line"


def examine(case: Case) -> Sign | None:
    """Read the kernel's parameters on bare metal with several GPUs; a virtual machine's host needs the translation."""
    where = case.look(lambda host: host.virtualization)
    if where is not None and (where.is_virtual_machine or where.is_container):
        return None
    quote = _complaint(case)
    slow = find_slow_run(case)
    harm = (f"an all-reduce reaches {slow.bus_gb_s:.1f} of {slow.floor.floor:g} GB/s",) if slow is not None else ()
    sign = explain_faults(case, case.faults("gpu.iommu_acs/iommu"), expected=_EXPECTED, seen=harm, quote=quote)
    if sign is not None:
        return replace(sign, confidence="high") if harm or quote else sign
    signal = case.signal("gpu.iommu_acs")
    if signal is not None and signal.status == SKIP:
        return None
    translating = case.look(lambda host: host.command_line)
    unseen = () if translating is not None else ("the kernel's parameters: `cat /proc/cmdline`",)
    return hint(quote, expected=_EXPECTED, unseen=unseen)


def _complaint(case: Case) -> Quote | None:
    """Return a fault of the IOMMU, or parameters in pasted text; faults of other devices than GPUs are left out."""
    short = tuple(address.partition(":")[2] for address in gpu_addresses(case))
    for quote in case.find_all(*SYMPTOMS):
        if any(word in quote.line for word in _PASSING):
            continue
        if "iommu=" in quote.match[0].lower() or not short or any(address in quote.line for address in short):
            return quote
    return None
