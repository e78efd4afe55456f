"""Xids: which belong to one incident, what the fields of an NVLink 5 Xid say, and the sign that rules make of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from provision.doctor.case import Case
from provision.doctor.gpus import is_own, name_address, own_seconds, quote_events
from provision.doctor.sign import Sign
from provision.matrix.load import Matrix
from provision.probe.parse.kernel_log import KernelEvent
from provision.records import record

_NVLINK = re.compile(
    r"Xid \([^)]{1,40}\)[^:]{0,60}: (\d{3}), (?:pid=[^,]{1,40}, )?(?:name=[^,]{1,64}, )?"
    r"([A-Z][A-Za-z0-9_/]{2,60}) (Nonfatal|Fatal)\b[^(]{0,40}?(?:Link (-?\d{1,3}))? ?\((0x[0-9a-fA-F]{1,8})"
    r"(?: (0x[0-9a-fA-F]{1,8}))?"
)
_ACTIONS = {"nvlink5_reset": "RESET_GPU", "nvlink5_ignore": "IGNORE", "nvlink5_follow_154": "XID_154"}


@record
class Incident:
    """Xids of one GPU that follow each other closely; ``pci`` is absent where the lines name no GPU."""

    pci: str | None
    events: tuple[KernelEvent, ...]

    @property
    def codes(self) -> tuple[int, ...]:
        """The different codes, in the order in which they came."""
        return tuple(dict.fromkeys(event.code for event in self.events if event.code is not None))


@record
class NvlinkFault:
    """The fields of an Xid between 144 and 150.

    Attributes:
        unit: The part of the link that errs (``RLW_RXPIPE``).
        is_fatal: Whether the line says Fatal.
        link: Number of the link.
        sub_code: Bits 20 to 25 of the first word.
        status: The second word, the error's own bits.
        action: What the catalogue wants: ``RESET_GPU``, ``IGNORE``, ``XID_154`` (what that Xid beside it says),
            ``None`` where the catalogue has no such combination.

    Source: leptonai/gpud for the fields, the NVIDIA Xid catalogue for the actions.
    """

    code: int
    unit: str
    is_fatal: bool
    link: int | None = None
    sub_code: int
    status: int | None = None
    action: str | None = None


def decode_nvlink(event: KernelEvent, matrix: Matrix) -> NvlinkFault | None:
    """Return what an Xid of NVLink 5 says, ``None`` for any other and for a line without the fields."""
    match = _NVLINK.search(event.text) if event.kind == "xid" else None
    if match is None or int(match[1]) != event.code:
        return None
    information = int(match[5], 16)
    sub_code = information >> 20 & 0x3F
    status = int(match[6], 16) if match[6] else None
    return NvlinkFault(
        code=int(match[1]),
        unit=match[2],
        is_fatal=match[3] == "Fatal",
        link=int(match[4]) if match[4] else None,
        sub_code=sub_code,
        status=status,
        action=_action(matrix, match[1], match[2], sub_code, status),
    )


def _action(matrix: Matrix, code: str, unit: str, sub_code: int, status: int | None) -> str | None:
    states = ["*"] if status is None else [f"0x{status:08x}", "*"]
    wanted = {f"{code} {part} {sub_code} {state}" for part in (unit, *unit.split("/")) for state in states}
    settings = matrix.settings("xid.toml")
    for name, action in _ACTIONS.items():
        if name in settings and wanted & set(settings[name].values):
            return action
    return None


def group_incidents(events: Iterable[KernelEvent], gap_seconds: float) -> tuple[Incident, ...]:
    """Return Xids by GPU and moment, in the order in which the incidents began.

    Args:
        events: Oldest first. One without a time belongs to the incident before it on the same GPU.
        gap_seconds: Silence on a GPU after which the next Xid is another incident.
    """
    open_groups: dict[str | None, list[KernelEvent]] = {}
    groups: list[tuple[str | None, list[KernelEvent]]] = []
    for event in events:
        group = open_groups.get(event.pci)
        if group is None or _is_apart(group, event, gap_seconds):
            group = open_groups[event.pci] = []
            groups.append((event.pci, group))
        group.append(event)
    return tuple(Incident(pci=pci, events=tuple(group)) for pci, group in groups)


def _is_apart(group: Sequence[KernelEvent], event: KernelEvent, gap_seconds: float) -> bool:
    last = next((known.seconds for known in reversed(group) if known.seconds is not None), None)
    return last is not None and event.seconds is not None and abs(event.seconds - last) > gap_seconds


def incidents_of(case: Case) -> tuple[Incident, ...]:
    """Return all Xids of a case as incidents."""
    return case.keep("incidents", lambda: group_incidents(case.events("xid"), case.matrix.limit("doctor.incident")))


def explain_xids(
    case: Case,
    *codes: int,
    expected: str = "no such Xid in the kernel log",
    seen: Iterable[str] = (),
    fix: Iterable[str] = (),
    unseen: Iterable[str] = (),
) -> Sign | None:
    """Return the sign of some Xids, ``None`` where none of them was logged.

    Args:
        case: What is to be explained.
        codes: The Xids.
        expected: What a healthy target shows.
        seen: Further things seen, after the lines.
        fix: Steps for this very case.
        unseen: What would settle it.
    """
    events = case.xid(*codes)
    if not events:
        return None
    lines = quote_events(events) if any(event.pci or event.seconds for event in events) else _given(events)
    addresses = dict.fromkeys(event.pci for event in events if event.pci)
    return Sign(
        confidence="high" if any(is_own(case, event) for event in events) else "medium",
        seen=(*lines, *_company(case, events), *seen),
        expected=expected,
        subjects=tuple(name_address(case, address) for address in addresses),
        fix=tuple(fix),
        unseen=tuple(unseen) if case.host is None else (),
        seconds=own_seconds(case, events),
    )


def _given(events: Sequence[KernelEvent]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(event.text for event in events))


def _company(case: Case, events: Sequence[KernelEvent]) -> tuple[str, ...]:
    """Say which other Xids belong to the same incident."""
    mine = {event.code for event in events}
    others: dict[int, None] = {}
    for incident in incidents_of(case):
        if incident.pci is not None and not mine.isdisjoint(incident.codes):
            others |= dict.fromkeys(code for code in incident.codes if code not in mine)
    if not others:
        return ()
    return (f"in the same incident: Xid {', '.join(str(code) for code in others)}",)
