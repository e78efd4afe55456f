"""A GPU runs on fewer PCIe lanes than it has."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.gpus import gpu_addresses, name_address, own_seconds, quote_events
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.probe.parse.kernel_log import KernelEvent

SYMPTOMS = (r"available PCIe bandwidth, limited by", r"LnkSta:.{0,60}Width x\d{1,2} \(downgraded\)")

_LIMITED = re.compile(r"limited by .{0,40}?x(\d{1,2}) link at .{0,80}?capable of .{0,60}?x(\d{1,2}) link")
_OTHER_CARD = re.compile(
    r"\b(?:mlx[45]_\w+|nvme\w*|bnxt_en|ixgbe|i40e|igb|ice|megaraid_sas|mpt3sas|hfi1|qede) ", re.IGNORECASE
)
_EXPECTED = "as many lanes as the GPU has"


def examine(case: Case) -> Sign | None:
    """Compare lanes in use with lanes the GPU has, on models that are not sold with fewer; rates are no matter here."""
    faults = case.faults("gpu.pcie.width")
    names = {fault.subject for fault in faults}
    known = gpu_addresses(case)
    events = tuple(
        event
        for event in case.events("pcie-limited")
        if (name_address(case, event.pci or "") in names if known else not _is_other_card(case, event))
        and _is_narrow(event.text)
    )
    if faults:
        return explain_faults(case, faults, expected=_EXPECTED, events=events)
    if not events:
        if known:
            return None
        return hint(
            case.find(SYMPTOMS[1]),
            confidence="low",
            expected=_EXPECTED,
            unseen=("which device it is; A10G and T4 with eight lanes are as they should be",),
        )
    addresses = dict.fromkeys(event.pci for event in events if event.pci)
    return Sign(
        confidence="medium",
        seen=quote_events(events),
        expected=_EXPECTED,
        subjects=tuple(name_address(case, pci) for pci in addresses),
        unseen=() if known else ("whether the device is a GPU, and how many lanes it has now: `lspci -vv -d 10de:`",),
        seconds=own_seconds(case, events),
    )


def _is_other_card(case: Case, event: KernelEvent) -> bool:
    """Tell whether the driver of another kind of card names itself or this address: the bus speaks before it does."""
    if _OTHER_CARD.match(event.text):
        return True
    address = re.escape(event.pci or "none")
    return any(_OTHER_CARD.search(quote.line) for quote in case.find_all(rf"\b{address}\b"))


def _is_narrow(text: str) -> bool:
    match = _LIMITED.search(text)
    return match is not None and int(match[1]) < int(match[2])
