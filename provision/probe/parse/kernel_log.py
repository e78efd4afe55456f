"""The kernel log in its five time styles, and the events in it that concern GPUs.

Styles: ``[  12.345678]`` of dmesg, ``[Mon Sep  1 10:00:00 2025]`` of ``dmesg -T``, ISO stamps of
``dmesg --time-format iso`` and ``journalctl -o short-iso``, ``Sep 01 10:00:00 host kernel:`` of syslog, and the raw
``6,1234,5678,-;`` of ``/dev/kmsg``; the facility prefixes of ``dmesg --decode`` may stand in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.probe.clean import clean, clean_line
from provision.probe.output import Unreadable
from provision.records import record

EVENTS_MAX = 10_000
"""More events than these are thinned out, the commonest first; of each kind the first and the last stay."""

_LINE_CHARACTERS = 2_000
_TEXT_CHARACTERS = 400
_CONTINUATIONS_MAX = 12
_EPOCH_DAY = 719_163
_BEGINNING_LINES = 100
_BEGINS = re.compile(r"Linux version \d|Booting Linux on ")
_LEFT_OUT = "-- lines that tell of faults are left out --"
"""What the collector prints in place of lines that it has no room for."""

_PREFIX = re.compile(r"(?:<\d{1,3}>|[a-z0-9]{2,10} {0,6}: ?[a-z]{3,8} {0,6}: ?)")
_BOOT = re.compile(r"\[ {0,12}(\d{1,12}\.\d{1,9})\] ?(?:\[ {0,8}[TC]\d{1,9}\] ?)?")
_CALENDAR = re.compile(r"\[(?:[A-Z][a-z]{2}) ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\] ?")
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?= |$) ?",
)
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))? ")
_SENDER = re.compile(r"(?:[\w.:-]{1,253} )?kernel(?:\[\d{1,9}\])?: ?")
_RAW = re.compile(r"\d{1,6},\d{1,20},(\d{1,20}),[^;\n]{0,80};")
_RAW_PROPERTY = re.compile(r" [A-Z_]{1,40}=")
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_KERNEL_WORDS = re.compile(
    r"(?:NVRM|nvidia[\w-]*|pcieport|pci|mlx\d\w*|nouveau|Linux version|watchdog|ACPI|AER|PM|DMAR|EDAC)\b"
)

_ADDRESS = r"(?:PCI:)?(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_DEVICE = re.compile(r"(?<![\w:.])(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)(?![\w:])")
_ADDRESS_PARTS = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")

_XID = re.compile(rf"(?<!S)Xid \(({_ADDRESS})\)(?: [^:]{{0,60}})?: (\d{{1,6}})(?!\d)")
_SXID = re.compile(
    rf"SXid \(({_ADDRESS})\)(?: [^:]{{0,60}})?: (\d{{1,6}})(?!\d)(?:, (Non-?fatal|Fatal))?", re.IGNORECASE
)
_PROCESS = re.compile(r"\bpid='?(\d{1,10}|<unknown>)'?(?:, name='?([^',]{1,64})'?)?")
_SEGFAULT = re.compile(r"([\w./ -]{1,64})\[(\d{1,10})\](?::| ) ?segfault at .{0,200} in libnccl(?:-net)?\.so")
_KILLED = re.compile(r"(?:Killed|Kill) process (\d{1,10}) \(([^)]{1,64})\)")
_HUNG = re.compile(r"INFO: task ([^ ]{1,64}):(\d{1,10}) blocked for more than")
_LOCKUP = re.compile(r"soft lockup.{0,80}?\[([^\]]{1,64}):(\d{1,10})\]")

_AER_RECEIVED = re.compile(
    r"AER: (?:Multiple )?(Correct\w+|Uncorrect\w+ \((?:Non-)?Fatal\)|Uncorrect\w+) error (?:message )?received"
    rf"(?: from|:)? ?({_ADDRESS})?",
    re.IGNORECASE,
)
_AER_DETAIL = re.compile(
    rf"({_ADDRESS}): (?:AER: )?PCIe Bus Error: severity=(Correct\w+|Uncorrect\w+ \((?:Non-)?Fatal\)|Uncorrect\w+)",
    re.IGNORECASE,
)
_BAR = re.compile(
    r"BAR [0-6](?: \[mem [^\]]{0,80}\])?: (?:can't assign|no space for \[mem|failed to assign(?: \[mem)?)"
    r"|PCI I/O region assigned to your NVIDIA device is invalid|\bBAR\d is 0M\b",
)
_MULTILINE = re.compile(r"NVRM: (?:API mismatch|The NVIDIA GPU |This PCI I/O region)")
_MULTILINE_REST = re.compile(r"NVRM: (?!API mismatch|The NVIDIA GPU |Xid |GPU )")

_PLAIN: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    # Each line of a log meets them all: the word is looked for first, which costs a tenth of the expression.
    (kind, word, re.compile(pattern, re.IGNORECASE))
    for kind, word, pattern in (
        ("open-required", "open kernel modules", r"requires use of the NVIDIA open kernel modules"),
        ("open-unsupported", "not supported by", r"not supported by (?:the )?(?:NVRM: )?(?:NVIDIA )?open\b"),
        ("fallen-off", " the bus", r"^(?!nouveau).{0,300}?(?:fallen off the bus|GPU lost from the bus)"),
        ("fallen-off", "nv_err_gpu_is_lost", r"NV_ERR_GPU_IS_LOST"),
        ("api-mismatch", "api mismatch", r"NVRM: API mismatch"),
        ("gsp-firmware", "failed with error", r"nvidia/[^ ]{0,120}gsp[^ ]{0,60} failed with error"),
        ("gsp-firmware", "failed with error", r"gsp_\w{1,20}\.bin failed with error"),
        ("gsp-firmware", "gsp firmware", r"Cannot initialize GSP firmware"),
        ("rm-init-failed", "adapter failed", r"RmInitAdapter failed|rm_init_adapter failed"),
        ("nouveau-bound", "already bound", r"already bound (?:by|to) (?:nouveau|nova)"),
        ("probe-failed", "failed with error", r"nvidia\S{0,20} probe of [0-9a-f:.]{7,16} failed with error"),
        ("probe-failed", "failed with error", r"probe with driver nvidia failed with error"),
        ("probe-failed", "nvidia probe routine", r"NVIDIA probe routine (?:failed|was not called)"),
        ("probe-failed", "none of the nvidia", r"None of the NVIDIA (?:devices|graphics)"),
        ("module-key-rejected", "rejected", r"Key was rejected by service|Loading of unsigned module is rejected"),
        ("module-key-rejected", "is restricted", r"unsigned module loading is restricted"),
        ("d3cold", "d3cold", r"change power state from D3cold"),
        ("mlx5-power", "insufficient power", r"insufficient power on the PCIe slot"),
        ("mlx5-temperature", "high temperature", r"mlx5_core.{0,200}High Temperature"),
        ("peermem-context", "invalid context", r"nvidia-peermem.{0,120}ERROR detected invalid context"),
        ("pcie-limited", "limited by", r"available PCIe bandwidth, limited by"),
        ("link-lost", "nic link is down", r"NIC Link is Down"),
        ("link-lost", "link down", r"^(?!ata\d|pci).{0,300}?\bLink down\b"),
        ("link-lost", "carrier", r"lost carrier"),
        ("link-lost", "unplugged", r"Cable unplugged"),
        ("out-of-memory", "out of memory", r"out of memory: Kill"),
        ("soft-lockup", "soft lockup", r"BUG: soft lockup"),
        ("hung-task", "blocked for", r"INFO: task .{1,80} blocked for more than"),
        ("suspend", "pm: suspend", r"\bPM: suspend (?:entry|exit)"),
    )
)


EVENT_WORDS = tuple(
    dict.fromkeys(
        ("xid (", "libnccl", "bar", "i/o region", "aer: ", "pcie bus error", *(word for _, word, _ in _PLAIN))
    )
)
"""Words in lower case of which every line of an event holds one."""


@record
class KernelEvent:
    """Something the kernel log says about a GPU or what it hangs on.

    Attributes:
        kind: ``xid``, ``sxid``, ``fallen-off`` (also without an Xid), ``api-mismatch``, ``nccl-segfault``,
            ``aer-fatal``, ``aer-uncorrected``, ``aer-corrected``, ``pcie-limited``, ``bar-unassigned``,
            ``rm-init-failed``, ``gsp-firmware``, ``nouveau-bound``, ``open-unsupported``, ``open-required``,
            ``module-key-rejected``, ``d3cold``, ``mlx5-power``, ``mlx5-temperature``, ``link-lost``,
            ``peermem-context``, ``out-of-memory``, ``soft-lockup``, ``hung-task``, ``suspend``, ``probe-failed``.
        code: Xid or SXid number.
        is_fatal: For ``sxid``, whether the line says Fatal.
        pci: Address of the device, where the line has one.
        seconds: Since boot, or of a calendar clock: only differences count. ``None`` where the line has no stamp.
        text: The message without its stamp, on one line, at most 400 characters, terminal escapes removed.
        process: Name and pid as printed, where the line has them.
    """

    kind: str
    code: int | None = None
    is_fatal: bool | None = None
    pci: str | None = None
    seconds: float | None = None
    text: str
    process: str | None = None


@record
class KernelLog:
    """Lines as (seconds or ``None``, message), oldest first, and the events found in them, in the same order.

    Attributes:
        lines: All lines, their stamps taken off, continuation lines joined to the line they continue.
        events: At most :data:`EVENTS_MAX`.
        left_out: How many events a log has beyond those kept.
        is_whole: Whether it begins where the kernel started and holds all lines since that tell of a fault: only then
            what it does not say did not happen.
    """

    lines: tuple[tuple[float | None, str], ...] = ()
    events: tuple[KernelEvent, ...] = ()
    left_out: int = 0
    is_whole: bool = False

    def of(self, *kinds: str) -> tuple[KernelEvent, ...]:
        """Return the events of some kinds."""
        return tuple(event for event in self.events if event.kind in kinds)


def parse_kernel_log(text: str) -> KernelLog:
    """Read a kernel log of any of the styles, even mixed; an empty text is an empty log.

    Raises:
        Unreadable: It is binary, or not one line of many looks like a kernel's.
    """
    if "\x00" in text or text.count("\ufffd") * 20 > len(text):
        raise Unreadable("the kernel log is binary")
    if not text.strip():
        return KernelLog()
    lines, is_kernels = _read_lines(text)
    if not lines:
        return KernelLog()
    found = tuple(_events(lines))
    if not found and not is_kernels:
        raise Unreadable("no line of the kernel log looks like a kernel's")
    events = _thin(found)
    is_whole = _LEFT_OUT not in text and any(
        seconds == 0 or _BEGINS.match(message) for seconds, message in lines[:_BEGINNING_LINES]
    )
    return KernelLog(lines=lines, events=events, left_out=len(found) - len(events), is_whole=is_whole)


def _read_lines(text: str) -> tuple[tuple[tuple[float | None, str], ...], bool]:
    """Return the lines without their stamps, and whether one of them was written by a kernel."""
    gathered: list[tuple[float | None, list[str]]] = []
    is_kernels = False
    year, month = 2000, 1
    for raw in text.split("\n"):
        line = clean(raw[:_LINE_CHARACTERS]).rstrip()
        if not line.strip():
            continue
        if line[0] in " \t" and gathered:
            if _RAW_PROPERTY.match(line) is None and len(gathered[-1][1]) < _CONTINUATIONS_MAX:
                gathered[-1][1].append(line.strip())
            continue
        if (yearless := _SYSLOG.match(line)) and (number := _MONTHS.get(yearless[1])):
            # A log of syslog names no year: the step from December to January is the only sign of a new one.
            year += number == 1 and month == 12
            month = number
        stamped, seconds, message = _take_stamp(line.strip(), year)
        is_kernels = is_kernels or stamped or _KERNEL_WORDS.match(message) is not None
        gathered.append((seconds, [message]))
    return tuple((seconds, " ".join(parts)) for seconds, parts in gathered), is_kernels


def _take_stamp(line: str, year: int) -> tuple[bool, float | None, str]:
    """Return whether a line has a stamp, the seconds it tells, and the rest of the line."""
    if prefix := _PREFIX.match(line):
        rest = line[prefix.end() :]
        if _BOOT.match(rest) or _CALENDAR.match(rest) or _ISO.match(rest):
            line = rest
    if match := _BOOT.match(line):
        return True, float(match[1]), line[match.end() :].strip()
    if match := _RAW.match(line):
        # The kernel escapes line ends inside a record; both spellings below stand for one.
        return True, int(match[1]) / 1e6, line[match.end() :].replace("\\x0a", " ").strip()
    return _take_calendar_stamp(line, year)


def _take_calendar_stamp(line: str, year: int) -> tuple[bool, float | None, str]:
    """Do the same for a stamp of a calendar clock."""
    seconds: float | None
    if match := _CALENDAR.match(line):
        seconds = _epoch(match[6], _MONTHS.get(match[1], 0), match[2], match[3], match[4], match[5])
        return (False, None, line) if seconds is None else (True, seconds, line[match.end() :].strip())
    if match := _ISO.match(line):
        seconds = _epoch(match[1], int(match[2]), match[3], match[4], match[5], match[6])
        fraction, offset = match[7], _offset(match[8])
    elif match := _SYSLOG.match(line):
        seconds = _epoch(str(year), _MONTHS.get(match[1], 0), match[2], match[3], match[4], match[5])
        fraction, offset = match[6], 0.0
    else:
        return False, None, line
    if seconds is None:
        return False, None, line
    message = line[match.end() :].replace("#012", " ")
    if sender := _SENDER.match(message):
        message = message[sender.end() :]
    if inner := _BOOT.match(message):
        message = message[inner.end() :]
    return True, seconds + float(f"0.{fraction or 0}") - offset, message.strip()


def _epoch(year: str, month: int, day: str, hour: str, minute: str, second: str) -> float | None:
    from datetime import date  # few commands read a log

    try:
        days = date(int(year), month, int(day)).toordinal()
    except ValueError:
        return None
    return (days - _EPOCH_DAY) * 86_400.0 + int(hour) * 3_600 + int(minute) * 60 + int(second)


def _offset(zone: str | None) -> float:
    if zone is None or zone == "Z":
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def _events(lines: tuple[tuple[float | None, str], ...]) -> Iterator[KernelEvent]:
    index = 0
    detailed_by = -1
    while index < len(lines):
        seconds, line = lines[index]
        index += 1
        message = line[:_LINE_CHARACTERS]
        if "NVRM: " in message and _MULTILINE.search(message):
            joined = [message]
            while index < len(lines) and len(joined) < _CONTINUATIONS_MAX and _MULTILINE_REST.match(lines[index][1]):
                joined.append(lines[index][1].removeprefix("NVRM: ")[:_LINE_CHARACTERS])
                index += 1
            message = " ".join(joined)
        received = _AER_RECEIVED.search(message) if "AER: " in message else None
        detail = _AER_DETAIL.search(message) if "PCIe Bus Error" in message else None
        if received is not None:
            yield _event(_aer_kind(received[1]), seconds, message, pci=received[2])
            # The detail of the same error follows within a few lines and is not a second error.
            detailed_by = index + 3
        elif detail is not None:
            if index > detailed_by:
                yield _event(_aer_kind(detail[2]), seconds, message, pci=detail[1])
        elif (event := _read_event(seconds, message)) is not None:
            yield event


def _read_event(seconds: float | None, message: str) -> KernelEvent | None:
    if "Xid (" in message:
        if (match := _SXID.search(message)) is not None:
            severity = match[3]
            is_fatal = None if severity is None else severity.lower() == "fatal"
            return _event("sxid", seconds, message, pci=match[1], code=int(match[2]), is_fatal=is_fatal)
        if (match := _XID.search(message)) is not None:
            return _event(
                "xid", seconds, message, pci=match[1], code=int(match[2]), process=_process(_PROCESS.search(message))
            )
    if "libnccl" in message and (match := _SEGFAULT.search(message)) is not None:
        return _event("nccl-segfault", seconds, message, process=f"{match[1].strip()} ({match[2]})")
    if ("BAR" in message or "I/O region" in message) and _BAR.search(message) is not None:
        return _event("bar-unassigned", seconds, message)
    lowered = message.lower()
    for kind, word, pattern in _PLAIN:
        if word in lowered and pattern.search(message) is not None:
            process = None
            if kind == "out-of-memory" and (match := _KILLED.search(message)) is not None:
                process = f"{match[2]} ({match[1]})"
            elif kind in ("hung-task", "soft-lockup"):
                match = (_HUNG if kind == "hung-task" else _LOCKUP).search(message)
                process = f"{match[1]} ({match[2]})" if match is not None else None
            return _event(kind, seconds, message, process=process)
    return None


def _event(
    kind: str,
    seconds: float | None,
    message: str,
    *,
    pci: str | None = None,
    code: int | None = None,
    is_fatal: bool | None = None,
    process: str | None = None,
) -> KernelEvent:
    if pci is None and (device := _DEVICE.search(message)) is not None:
        pci = device[1]
    return KernelEvent(
        kind=kind,
        code=code,
        is_fatal=is_fatal,
        pci=_normal_address(pci),
        seconds=seconds,
        text=clean_line(message, _TEXT_CHARACTERS),
        process=process,
    )


def _aer_kind(severity: str) -> str:
    severity = severity.lower()
    if severity.startswith("correct"):
        return "aer-corrected"
    return "aer-fatal" if "(fatal)" in severity else "aer-uncorrected"


def _process(match: re.Match[str] | None) -> str | None:
    if match is None or match[1] == "<unknown>":
        return None
    name = match[2]
    return f"{name} ({match[1]})" if name and name != "<unknown>" else f"pid {match[1]}"


def _normal_address(address: str | None) -> str | None:
    match = _ADDRESS_PARTS.fullmatch(address) if address else None
    if match is None:
        return None
    domain = (match[1] or "0000").lower()
    if len(domain) == 8:  # as NVML prints it; sysfs has four digits
        domain = domain.removeprefix("0000")
    return f"{domain}:{match[2]}:{match[3]}.{match[4] or 0}".lower()


def _thin(events: tuple[KernelEvent, ...]) -> tuple[KernelEvent, ...]:
    """Return at most :data:`EVENTS_MAX` events: of the commonest kinds only the first and the last."""
    if len(events) <= EVENTS_MAX:
        return events
    groups: dict[tuple[str, int | None], list[int]] = {}
    for index, event in enumerate(events):
        groups.setdefault((event.kind, event.code), []).append(index)
    kept: list[int] = []
    waiting = sorted(groups.values(), key=len)
    for position, indices in enumerate(waiting):
        share = (EVENTS_MAX - len(kept)) // (len(waiting) - position)
        if len(indices) <= share:
            kept += indices
        else:
            first = (share + 1) // 2
            last = share - first
            kept += indices[:first] + (indices[-last:] if last else [])
    return tuple(events[index] for index in sorted(kept))
