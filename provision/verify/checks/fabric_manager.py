"""Fabric manager runs, in the version of the driver."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.gpus import has_visible_nvswitch
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_UNIT = "nvidia-fabricmanager"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look at the unit first, then at the version: another one refuses to bring the NVSwitches up."""
    del expected, matrix
    if host.virtualization.is_virtual_machine and not has_visible_nvswitch(host):
        return skipped("the switches are not handed to this virtual machine, and its host manages them")
    unit = host.units.get(_UNIT)
    driver = host.driver.version
    if unit is None or not unit.is_installed:
        return failed("fabric manager is not installed", f"`{_UNIT}` {driver}, active", subjects=[_UNIT])
    if not unit.is_active:
        why = f" ({unit.result})" if unit.result not in ("", "success") else ""
        return failed(f"`{_UNIT}` is {unit.active}{why}", "active", subjects=[_UNIT])
    try:
        version = host.fabric_manager.version
    except Unreadable as error:
        return unknown(f"`{_UNIT}` is active; {error.reason}")
    if version is None:
        return unknown(f"`{_UNIT}` is active and does not tell its version")
    if version != driver:
        return failed(f"fabric manager is {version}, the driver {driver}", f"fabric manager {driver}", subjects=[_UNIT])
    return passed(f"`{_UNIT}` {version} is active")
