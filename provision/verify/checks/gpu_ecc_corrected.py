"""Corrected memory errors stay within what others accept."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, judge_gpus, read_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count corrected errors over the life of the board: of all memories, and of SRAM alone."""
    del expected
    limits = {
        "ecc_aggregate_correctable": ("corrected errors", matrix.limit("gpu.ecc.corrected.maximum")),
        "ecc_aggregate_sram_correctable": ("corrected SRAM errors", matrix.limit("gpu.ecc.corrected.sram.maximum")),
    }
    readings = [
        FieldReading(gpu, None if count is None else count < maximum, f"has {count} {what}", absence, field)
        for gpu in host.smi.gpus
        for field, (what, maximum) in limits.items()
        for count, absence in [read_field(gpu, field)]
    ]
    every = [gpu.ecc_aggregate_correctable for gpu in host.smi.gpus if gpu.ecc_aggregate_correctable is not None]
    return judge_gpus(
        readings,
        fine=f"at most {max(every)} corrected errors on a GPU" if every else "few corrected errors",
        expected=", ".join(f"fewer than {maximum:.0f} {what}" for what, maximum in limits.values()),
    )
