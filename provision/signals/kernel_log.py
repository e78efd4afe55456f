"""What the kernel said of GPUs, switches, buses and links."""

from __future__ import annotations

from collections import Counter

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable, read_or
from provision.probe.parse.kernel_log import KernelEvent
from provision.probe.parse.pci import list_gpu_bridges
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import count_words, name_address, read_events, require_whole_log
from provision.signals.signal import Fault, Signal, failed, faulty, passed, unknown

_FATAL = "fatal"
_HARMLESS = ("application", "information")


def gpu_xid(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge each Xid of the kernel log by the catalogue, and each GPU that fell off the bus without one.

    Warnings and errors of programs are told and pass: what a warning is about shows in the state of the GPU, which
    other checks judge, and its line stays in the log after the repair. An Xid outside the catalogue is unknown.
    """
    events = read_events(host, "xid", "fallen-off")
    bad = [event for event in events if _severity(event, matrix) == _FATAL]
    strange = [event for event in events if _severity(event, matrix) is None]
    if bad:
        known = next((row for event in bad if (row := matrix.xids.get(event.code or 0)) is not None), None)
        return failed(
            _say_xids(host, matrix, bad),
            "no fatal Xid",
            faults=_faults_of(host, matrix, bad),
            subjects=dict.fromkeys(name_address(host, event.pci) for event in bad),
            remedy=(known.advice or "") if known is not None else "",
        )
    if strange:
        return unknown(f"the catalogue does not know: {_say_xids(host, matrix, strange)}")
    require_whole_log(host)
    warnings = [event for event in events if _severity(event, matrix) not in _HARMLESS]
    if warnings:
        said = f"none fatal, to be watched: {_say_xids(host, matrix, warnings)}"
        return passed(said, faults=_faults_of(host, matrix, warnings))
    if events:
        return passed(f"only errors of programs: {_say_xids(host, matrix, list(events))}")
    return passed("no Xid since boot")


def _severity(event: KernelEvent, matrix: Matrix) -> str | None:
    """Return the catalogue's word, or ``None`` where it has none."""
    if event.code is None:
        return "fatal" if event.kind == "fallen-off" else None
    known = matrix.xids.get(event.code)
    return known.severity if known is not None else None


def _faults_of(host: Snapshot, matrix: Matrix, events: list[KernelEvent]) -> list[Fault]:
    """Return a fault a GPU and code, of the code's kind; ``fallen`` for a GPU that fell off without one."""
    named = {(name_address(host, event.pci), event.code): event for event in events}
    return [
        Fault(said=_say_xids(host, matrix, [event]), subject=name, kind="fallen" if code is None else str(code))
        for (name, code), event in named.items()
    ]


def _say_xids(host: Snapshot, matrix: Matrix, events: list[KernelEvent]) -> str:
    counts = Counter((name_address(host, event.pci), event.code) for event in events)
    said = []
    for (name, code), count in counts.items():
        known = matrix.xids.get(code) if code is not None else None
        what = "fell off the bus" if code is None else f"Xid {code}{f' ({known.meaning})' if known is not None else ''}"
        said.append(f"{name} {what}{f', {count} times' if count > 1 else ''}")
    return "; ".join(said)


def gpu_sxid(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Read the SXids of the kernel log, whose lines say whether they are fatal, and fabric manager's fatal ones."""
    logged = _fatal_for_fabric_manager(host)
    try:
        events = read_events(host, "sxid")
    except Unreadable:
        if not logged:
            raise
        events = ()
    fatal = [event for event in events if event.is_fatal]
    unclear = [event for event in events if event.is_fatal is None]
    said = "; ".join(
        f"NVSwitch {pci or 'without an address'} SXid {code}{f', {count} times' if count > 1 else ''}"
        for (pci, code), count in Counter((event.pci, event.code) for event in fatal or unclear or events).items()
    )
    if fatal or logged:
        faults = [
            Fault(said=f"{name} had fatal SXid {code}", subject=name)
            for name, code in dict.fromkeys((f"NVSwitch {event.pci or '?'}", event.code) for event in fatal)
        ]
        if logged:
            faults.append(Fault(said=f"fabric manager logged fatal SXid {', '.join(map(str, logged))}"))
        told = [*([f"fatal: {said}"] if fatal else []), *(fault.said for fault in faults if not fault.subject)]
        subjects = dict.fromkeys(fault.subject for fault in faults if fault.subject)
        return failed("; ".join(told), "none", subjects=subjects, faults=faults)
    if unclear:
        return unknown(f"whether they are fatal is unknown: {said}")
    require_whole_log(host)
    return passed(f"none fatal: {said}" if events else "no SXid since boot")


def _fatal_for_fabric_manager(host: Snapshot) -> tuple[int, ...]:
    return read_or(lambda: tuple(dict.fromkeys(host.fabric_manager.fatal)), ())


_BRIDGE = "06"


def gpu_pcie_aer(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count uncorrectable errors of GPUs, NVSwitches and bridges above GPUs, and those that name no device."""
    events = read_events(host, "aer-fatal", "aer-uncorrected")
    above = list_gpu_bridges(host.pci)
    devices = {
        device.address
        for device in host.pci
        # Where a GPU hangs is not always told; then each bridge may be the one.
        if device.vendor == "10de"
        or (device.class_code.startswith(_BRIDGE) and (above is None or device.address in above))
    }
    counts = Counter(
        (event.pci, "fatal" if event.kind == "aer-fatal" else "uncorrectable")
        for event in events
        if event.pci is None or event.pci in devices
    )
    if not counts:
        require_whole_log(host)
        return passed("no uncorrectable PCIe error since boot")
    names = {address: name_address(host, address) for address, _ in counts}
    faults = [
        Fault(said=f"{names[address]} had {count_words(count, f'{kind} error')}", subject=names[address])
        for (address, kind), count in counts.items()
    ]
    return faulty(faults, "none")


def host_hugelog(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count what the kernel says of programs whose libraries are of another version than its module."""
    events = read_events(host, "api-mismatch")
    if not events:
        return passed("no version mismatch in the kernel log since boot")
    counted = count_words(len(events), "version mismatch", "version mismatches")
    said = f"{counted} in the kernel log since boot, the last: {events[-1].text}"
    return failed(said, "none", faults=[Fault(said=said, certainty="low")])


_DAY_SECONDS = 24 * 3600


def net_rdma_flap(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count lost links in the kernel log over the last day that it covers."""
    events = read_events(host, "link-lost")
    newest = max((seconds for seconds, _ in host.kernel_log.lines if seconds is not None), default=None)
    lost = [event for event in events if _is_recent(event, newest)]
    counts = Counter(_lost_by(event) for event in lost)
    least = int(matrix.limit("net.rdma.flaps"))
    bad = {device: count for device, count in counts.items() if count >= least}
    if bad:
        faults = [
            Fault(said=f"{device} lost its link {count} times", subject=device) for device, count in sorted(bad.items())
        ]
        said = "; ".join(fault.said for fault in faults)
        return failed(f"{said} in a day", f"fewer than {least} times", subjects=sorted(bad), faults=faults)
    return passed(f"{len(lost)} lost links in the last day of the kernel log{_losses_of_ports(host)}")


def _is_recent(event: KernelEvent, newest: float | None) -> bool:
    return newest is None or event.seconds is None or newest - event.seconds <= _DAY_SECONDS


def _lost_by(event: KernelEvent) -> str:
    return event.pci or event.text.split(":")[0].strip()[:40]


def _losses_of_ports(host: Snapshot) -> str:
    try:
        downed = sum(port.downed or 0 for port in host.rdma_ports)
    except Unreadable:
        return ""
    return f", {downed} since the ports began to count" if downed else ""
