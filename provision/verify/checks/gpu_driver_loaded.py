"""The driver's kernel module is loaded."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for a live module called nvidia."""
    del expected, matrix
    modules = {module.name: module for module in host.modules}
    if not modules:
        return unknown("the kernel lists no module at all")
    if "nvidia" not in modules:
        instead = " and nouveau is" if "nouveau" in modules else ""
        return failed(f"the nvidia module is not loaded{instead}", "nvidia loaded")
    state = modules["nvidia"].state
    if state != "Live":
        return failed(f"the nvidia module is {state}", "nvidia loaded and live")
    return passed("nvidia is loaded")
