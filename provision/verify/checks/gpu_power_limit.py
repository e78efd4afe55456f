"""No GPU has a power limit below its default."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, judge_gpus, read_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the limit in force with the board's default."""
    del expected, matrix
    readings: list[FieldReading] = []
    for gpu in host.smi.gpus:
        limit, absence = read_field(gpu, "power_limit_w")
        default, default_absence = read_field(gpu, "power_default_w")
        if limit is None or default is None:
            readings.append(FieldReading(gpu, None, "", absence or default_absence))
        else:
            readings.append(
                FieldReading(gpu, limit >= default, f"is limited to {limit:g} W, its default is {default:g} W")
            )
    return judge_gpus(
        readings, fine="power limits are at or above the default", expected="the board's default, or more"
    )
