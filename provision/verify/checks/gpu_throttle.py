"""No GPU is slowed down by heat or by its power supply."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]

_FAULTS = {
    "hw_power_brake_slowdown": "the power supply's brake signal",
    "hw_slowdown": "its hardware",
    "hw_thermal_slowdown": "heat",
}


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for the reasons that the hardware gives; caps set by software are no fault."""
    del expected, matrix
    return judge_field(
        host.smi.gpus,
        "throttle",
        lambda reasons: _say([reason for reason in reasons if reason in _FAULTS]),
        fine="no hardware slowdown",
        expected="none active",
    )


def _say(reasons: list[str]) -> str | None:
    # The general reason comes along with each of the others and says nothing more.
    exact = [reason for reason in reasons if reason != "hw_slowdown"] or reasons
    return f"is slowed down by {' and '.join(_FAULTS[reason] for reason in exact)}" if exact else None
