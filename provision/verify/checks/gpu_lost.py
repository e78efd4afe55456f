"""Every GPU answers, and none has fallen off the bus."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.probe.output import FAILED
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import find_device, name_gpu
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_WORDS = ("gpu is lost", "unable to determine the device handle", "fallen off the bus", "device is lost")
_ADDRESS = re.compile(r"\b(?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\b")
_KEPT = 20_000
_VITAL = (
    "temperature_c",
    "memory_total_mib",
    "performance_state",
    "power_draw_w",
    "sm_clock_mhz",
    "utilization_percent",
)
"""Of these even a GPU that a guest, MIG or unified memory tells little about has some."""


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for errors in place of values, and for nvidia-smi giving up over one GPU."""
    del expected, matrix
    output = host.output("nvidia-smi-xml")
    if output.status == FAILED:
        said = f"{output.error[:_KEPT]}\n{output.text[:_KEPT]}"
        line = next((row.strip() for row in said.splitlines() if any(word in row.lower() for word in _WORDS)), None)
        if line is not None:
            lost = sorted({f"GPU {address.lower()}" for address in _ADDRESS.findall(line)})
            return failed(f"nvidia-smi says: {line}", "every GPU answers", subjects=lost)
    gpus = host.smi.gpus
    if not gpus:
        return unknown("nvidia-smi lists no GPU")
    faults: dict[str, str] = {}
    for gpu in gpus:
        device = find_device(host, gpu.pci)
        if device is not None and device.revision == "ff":
            faults[name_gpu(gpu)] = "no longer answers on the PCI bus"
        elif gpu.broken:
            faults[name_gpu(gpu)] = f"gives errors for {', '.join(sorted(gpu.broken)[:4])}"
        elif all(getattr(gpu, field) is None for field in _VITAL):
            faults[name_gpu(gpu)] = "tells neither temperature nor memory, power, clocks or load"
    if faults:
        return failed(
            "; ".join(f"{name} {fault}" for name, fault in faults.items()), "a value for each field", subjects=faults
        )
    for gpu in gpus:
        for field, said in gpu.unread:
            return unknown(f"{name_gpu(gpu)}: nvidia-smi says `{said}` of {field}, which no known driver says there")
    return passed(f"all {len(gpus)} GPUs answer")
