"""A GPU runs on fewer PCIe lanes than it has."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.gpus import gpu_addresses, model_of, name_address, own_seconds, quote_events, smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.probe.parse.kernel_log import KernelEvent

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"available PCIe bandwidth, limited by", r"LnkSta:.{0,60}Width x\d{1,2} \(downgraded\)")

_LIMITED = re.compile(r"limited by .{0,40}?x(\d{1,2}) link at .{0,80}?capable of .{0,60}?x(\d{1,2}) link")
_OTHER_CARD = re.compile(
    r"\b(?:mlx[45]_\w+|nvme\w*|bnxt_en|ixgbe|i40e|igb|ice|megaraid_sas|mpt3sas|hfi1|qede) ", re.IGNORECASE
)
_EXPECTED = "as many lanes as the GPU has"


def examine(case: Case) -> Sign | None:
    """Compare lanes in use with lanes the GPU has, on models that are not sold with fewer; rates are no matter here."""
    narrow = {}
    for gpu in smi_gpus(case):
        if gpu.pcie_width_current and gpu.pcie_width_max and gpu.pcie_width_current < gpu.pcie_width_max:
            narrow[gpu.pci] = (gpu.pcie_width_current, gpu.pcie_width_max, gpu.name)
    if not smi_gpus(case):
        for device in case.look(lambda host: host.pci) or ():
            if device.is_nvidia_gpu and device.width and device.width_max and device.width < device.width_max:
                narrow[device.address] = (device.width, device.width_max, device.name)
    narrow = {pci: row for pci, row in narrow.items() if row[0] < _lanes_of(case, row[2], row[1])}
    known = gpu_addresses(case)
    events = tuple(
        event
        for event in case.events("pcie-limited")
        if (event.pci in narrow if known else not _is_other_card(case, event)) and _is_narrow(event.text)
    )
    if not narrow and not events:
        if known:
            return None
        return hint(
            case.find(SYMPTOMS[1]),
            confidence="low",
            expected=_EXPECTED,
            unseen=("which device it is; A10G and T4 with eight lanes are as they should be",),
        )
    subjects = tuple(narrow) or tuple(dict.fromkeys(event.pci for event in events if event.pci))
    return Sign(
        confidence="high" if narrow else "medium",
        seen=(
            *(f"{name_address(case, pci)} uses {row[0]} of {row[1]} lanes" for pci, row in narrow.items()),
            *quote_events(events),
        ),
        expected=_EXPECTED,
        subjects=tuple(name_address(case, pci) for pci in subjects),
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


def _lanes_of(case: Case, name: str | None, most: int) -> int:
    """Return how many lanes a model has where it is sold, which for some is half of what the chip could use."""
    model = model_of(case, name)
    for row in case.matrix.rows("checks.toml", "limit"):
        if model is not None and row.id == f"gpu.pcie.width.{model.id}":
            return min(most, int(row.value))
    return most
