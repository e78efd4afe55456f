"""Secure Boot is off, or lets the driver's module load."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import read_events
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_ENROL = (
    "Enrol the key that signs the module (`mokutil --import MOK.der`, confirmed at the console on the next boot), or "
    "install the distribution's signed module packages."
)


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask for the state, and where it is on, for proof that the kernel takes the module."""
    del expected, matrix
    state = host.secure_boot
    if state.is_enabled is None:
        return skipped("the machine has no Secure Boot")
    if not state.is_enabled or state.is_setup_mode:
        return passed(
            "Secure Boot is off" if not state.is_enabled else "Secure Boot is in setup mode and lets all load"
        )
    module = host.nvidia_module
    if module.disk_version is not None and not module.signer:
        return failed("Secure Boot is on and the nvidia module is unsigned", "a signed module", remedy=_ENROL)
    signed = f", the module signed by {module.signer}" if module.signer else ""
    if module.loaded_version is not None:
        return passed(f"Secure Boot is on{signed} and loaded")
    try:
        refused = read_events(host, "module-key-rejected")
    except Unreadable:
        refused = ()
    if refused:
        return failed(
            f"Secure Boot is on{signed}, and the kernel refused its key: {refused[-1].text}",
            "a module signed with an enrolled key",
            remedy=_ENROL,
        )
    return unknown(f"Secure Boot is on{signed} and not loaded; whether the key is enrolled shows only then")
