"""A GPU does not wake up from the deepest power state."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import gpu_addresses, is_own, name_address, own_seconds, quote_events
from provision.doctor.sign import Sign

SYMPTOMS = (r"change power state from D3cold",)

_EXPECTED = "the GPU reaches the state D0"


def examine(case: Case) -> Sign | None:
    """Look for the kernel's complaint about a GPU, unless that GPU had fallen off the bus before."""
    known = gpu_addresses(case)
    lost = {event.pci: event.seconds for event in (*case.xid(79), *case.events("fallen-off"))}
    events = tuple(
        event
        for event in case.events("d3cold")
        if (event.pci in known or not known) and not _follows(event.seconds, event.pci, lost)
    )
    if not events:
        return None
    addresses = dict.fromkeys(event.pci for event in events if event.pci)
    return Sign(
        confidence="high" if known and any(is_own(case, event) for event in events) else "medium",
        seen=quote_events(events),
        expected=_EXPECTED,
        subjects=tuple(name_address(case, address) for address in addresses),
        unseen=() if known else ("whether the device is a GPU: `lspci -d 10de:`",),
        seconds=own_seconds(case, events),
    )


def _follows(seconds: float | None, pci: str | None, lost: dict[str | None, float | None]) -> bool:
    """Tell whether a GPU was lost first: a device that is gone cannot change its state either."""
    before = lost.get(pci)
    return before is not None and seconds is not None and before < seconds
