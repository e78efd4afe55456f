"""No uncorrectable PCIe error on a GPU or above it since boot."""

from __future__ import annotations

from collections import Counter

from provision.matrix.load import Matrix
from provision.probe.parse.pci import list_gpu_bridges
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import count_words, name_address, read_events, require_whole_log
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]

_BRIDGE = "06"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count uncorrectable errors of GPUs, NVSwitches and bridges above GPUs, and those that name no device."""
    del expected, matrix
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
    said = "; ".join(
        f"{names[address]} had {count_words(count, f'{kind} error')}" for (address, kind), count in counts.items()
    )
    return failed(said, "none", subjects=dict.fromkeys(names.values()))
