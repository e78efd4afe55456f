"""The loaded driver is the planned one."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare exactly; a plan that names only a floor is judged by ``gpu.driver.min_for_cuda``."""
    del matrix
    if expected.driver is None:
        return skipped("no exact driver is planned")
    loaded = host.find_driver_version()
    return passed(f"driver {loaded}") if loaded == expected.driver else failed(f"driver {loaded}", expected.driver)
