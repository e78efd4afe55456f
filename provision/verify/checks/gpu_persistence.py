"""The driver stays loaded between programs: persistence mode is on, or a display holds it."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, judge_gpus, name_gpu, read_field
from provision.verify.outcome import Outcome, skipped

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Read the mode of each GPU; guests of WSL and of a virtual GPU cannot set it."""
    del expected, matrix
    if host.virtualization.kind == "wsl":
        return skipped("WSL has no persistence mode")
    gpus = host.smi.gpus
    if gpus and all((gpu.virtualization or "").lower() == "vgpu" for gpu in gpus):
        return skipped("a virtual GPU has no persistence mode of its own")
    readings: list[FieldReading] = []
    held: list[str] = []
    for gpu in gpus:
        is_on, absence = read_field(gpu, "persistence")
        has_display = any("G" in process.kind for process in gpu.processes)
        if is_on is False and has_display:
            held.append(name_gpu(gpu))
        is_fine = None if is_on is None else is_on or has_display
        readings.append(FieldReading(gpu, is_fine, "has persistence mode off", absence))
    fine = f"a display holds {', '.join(held)}, persistence mode is off" if held else "persistence mode is on"
    return judge_gpus(readings, fine=fine, expected="Enabled")
