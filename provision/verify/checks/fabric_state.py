"""Every GPU has joined the NVSwitch fabric."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, is_field_told, judge_gpus, read_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask each GPU for its registration with fabric manager, and for what it says of it."""
    del expected
    readings = [
        FieldReading(
            gpu, None if value is None else value.lower() == fine, f"has the fabric {what} `{value}`", absence, field
        )
        for gpu in host.smi.gpus
        for field, what, fine in (("fabric_state", "state", "completed"), ("fabric_status", "status", "success"))
        for value, absence in [read_field(gpu, field)]
    ]
    return judge_gpus(
        readings,
        fine="every GPU has joined the fabric",
        expected="state Completed, status Success",
        is_told=is_field_told(host.smi, matrix, "fabric"),
    )
