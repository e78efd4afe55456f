"""The nouveau driver holds no GPU."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import list_gpu_devices
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for the module, and for a GPU bound to it."""
    del expected, matrix
    modules = [module.name for module in host.modules]
    try:
        bound = [device.address for device in list_gpu_devices(host) if device.driver == "nouveau"]
    except Unreadable:
        bound = []
    if "nouveau" in modules or bound:
        held = f" and holds {', '.join(bound)}" if bound else ""
        return failed(f"nouveau is loaded{held}", "not loaded", subjects=[f"GPU {address}" for address in bound])
    return passed("nouveau is not loaded") if modules else unknown("the kernel lists no module at all")
