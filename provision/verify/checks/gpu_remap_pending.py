"""No GPU waits for a reset to put spare memory rows, channels or processing clusters into use."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, is_field_told, judge_gpus, read_field
from provision.verify.outcome import Outcome

__all__ = ["check"]

_FIELDS = {
    "remap_pending": "a row remap",
    "channel_repair_pending": "a channel repair",
    "tpc_repair_pending": "a processing-cluster repair",
}


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask each GPU for each of the three repairs that a reset completes."""
    del expected
    readings = [
        FieldReading(gpu, None if waits is None else not waits, f"waits for {what}", absence, field)
        for gpu in host.smi.gpus
        for field, what in _FIELDS.items()
        for waits, absence in [read_field(gpu, field)]
    ]
    return judge_gpus(
        readings,
        fine="no GPU waits for a repair",
        expected="no repair pending",
        is_told=is_field_told(host.smi, matrix, "remapped-rows"),
    )
