"""No RDMA link keeps going down and up."""

from __future__ import annotations

from collections import Counter

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.parse.kernel_log import KernelEvent
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import read_events
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]

_DAY_SECONDS = 24 * 3600


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count lost links in the kernel log over the last day that it covers."""
    del expected
    events = read_events(host, "link-lost")
    newest = max((seconds for seconds, _ in host.kernel_log.lines if seconds is not None), default=None)
    lost = [event for event in events if _is_recent(event, newest)]
    counts = Counter(_device(event) for event in lost)
    least = int(matrix.limit("net.rdma.flaps"))
    bad = {device: count for device, count in counts.items() if count >= least}
    if bad:
        said = "; ".join(f"{device} lost its link {count} times" for device, count in sorted(bad.items()))
        return failed(f"{said} in a day", f"fewer than {least} times", subjects=sorted(bad))
    return passed(f"{len(lost)} lost links in the last day of the kernel log{_lifetime(host)}")


def _is_recent(event: KernelEvent, newest: float | None) -> bool:
    return newest is None or event.seconds is None or newest - event.seconds <= _DAY_SECONDS


def _device(event: KernelEvent) -> str:
    return event.pci or event.text.split(":")[0].strip()[:40]


def _lifetime(host: Snapshot) -> str:
    try:
        downed = sum(port.downed or 0 for port in host.rdma_ports)
    except Unreadable:
        return ""
    return f", {downed} since the ports began to count" if downed else ""
