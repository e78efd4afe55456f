"""An NVSwitch reported a fatal error."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import is_own, own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"NVSwitch fatal error \d{1,6}", r"SXid \([^)]{1,40}\)[^:]{0,60}: \d{1,6}, Fatal")

_EXPECTED = "no fatal error of an NVSwitch"


def examine(case: Case) -> Sign | None:
    """Look in the kernel log and in fabric manager's log; what is not fatal there mends itself."""
    events = tuple(event for event in case.events("sxid") if event.is_fatal)
    fabric = case.look(lambda host: host.fabric_manager)
    numbers = dict.fromkeys(fabric.fatal) if fabric is not None else {}
    quote = case.find(*SYMPTOMS)
    logged = (f"fabric manager logged fatal SXid {', '.join(map(str, numbers))}",) if numbers else ()
    if not events and not logged and quote is None:
        return None
    return Sign(
        confidence="high" if logged or any(is_own(case, event) for event in events) else "medium",
        seen=(*quote_events(events), *logged) or quoted(quote),
        expected=_EXPECTED,
        subjects=tuple(dict.fromkeys(event.pci for event in events if event.pci)),
        unseen=("fabric manager's log: `tail /var/log/fabricmanager.log`",) if fabric is None else (),
        seconds=own_seconds(case, events),
    )
