"""An NVLink of a GPU failed."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.gpus import name_address
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.doctor.xid import NvlinkFault, decode_nvlink, explain_xids, incidents_of
from provision.matrix.load import Matrix
from provision.probe.parse.kernel_log import KernelEvent
from provision.records import replace

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: (?:74|137|14[4-9]|150)\b", r"NVLink.{0,40}(?:fatal error|is down|inactive)")

_CODES = (74, 137, 144, 145, 146, 147, 148, 149, 150)
_ID = "xid.nvlink"
_LINK = re.compile(r"\blink ([0-9]{1,2})\b", re.IGNORECASE)
_SHOWN = 4
_SERVICE = "The same link failed more than once: have the board, or the cable of that link, serviced."
_EXPECTED = "all links active, no error on them"


def examine(case: Case) -> Sign | None:
    """Look for Xids of links and read their fields; without any, for single links that are down."""
    found = explain_xids(case, *_CODES, expected=_EXPECTED, unseen=("the state of the links: `nvidia-smi nvlink -s`",))
    events = case.xid(*_CODES)
    faults = [(event, decode_nvlink(event, case.matrix)) for event in events]
    inactive = case.faults("nvlink.active/inactive")
    down = tuple(fault.said for fault in inactive)
    again = _repeated(case)
    if found is not None:
        said = dict.fromkeys(
            f"{name_address(case, event.pci) if event.pci else 'a GPU'}, {_describe(fault)}"
            for event, fault in faults
            if fault is not None
        )
        actions = {fault.action for _, fault in faults if fault is not None}
        is_harmless = actions == {"IGNORE"} and all(fault is not None for _, fault in faults) and not down
        return replace(
            found,
            confidence="low" if is_harmless else found.confidence,
            seen=(*found.seen, *list(said)[:4], *again, *down),
            fix=(*case.matrix.diagnoses[_ID].fix, _SERVICE) if again else found.fix,
        )
    if inactive:
        unseen = ("what the kernel said when they went down",)
        return explain_faults(case, inactive, expected=_EXPECTED, unseen=unseen)
    unseen = ("whether they still rise: `nvidia-smi nvlink -e` twice, under load",)
    return explain_faults(case, case.faults("nvlink.errors")[:_SHOWN], expected=_EXPECTED, unseen=unseen)


def _repeated(case: Case) -> tuple[str, ...]:
    """Name the links that failed in more than one incident: a reset did not help them."""
    times: dict[tuple[str, int], int] = {}
    for incident in incidents_of(case):
        links = {
            link
            for event in incident.events
            if event.code in _CODES
            if (link := _link_of(event, case.matrix)) is not None
        }
        for link in links:
            key = (incident.pci or "", link)
            times[key] = times.get(key, 0) + 1
    return tuple(
        f"link {link} of {name_address(case, pci) if pci else 'a GPU'} failed {count} times"
        for (pci, link), count in times.items()
        if count > 1
    )


def _link_of(event: KernelEvent, matrix: Matrix) -> int | None:
    fault = decode_nvlink(event, matrix)
    if fault is not None:
        return None if fault.action == "IGNORE" else fault.link
    match = _LINK.search(event.text)
    return int(match[1]) if match else None


def _describe(fault: NvlinkFault) -> str:
    link = f"link {fault.link}" if fault.link is not None else "a link"
    wish = {
        "RESET_GPU": "the catalogue wants a reset",
        "IGNORE": "the catalogue wants nothing done",
        "XID_154": "Xid 154 beside it says what to do",
        None: "not in the catalogue's list",
    }[fault.action]
    return f"{link}: {fault.unit}, {'fatal' if fault.is_fatal else 'not fatal'}, sub-code {fault.sub_code}: {wish}"
