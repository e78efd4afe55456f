"""The firmware on each GPU is of the driver's version."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import judge_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the firmware of the GPU system processor with the driver; without one, or with it off, there is none."""
    del expected, matrix
    version = host.smi.driver_version
    return judge_field(
        host.smi.gpus,
        "gsp_firmware",
        lambda firmware: f"runs firmware {firmware}" if firmware != version else None,
        fine=f"firmware and driver are {version}",
        expected=f"firmware {version}",
    )
