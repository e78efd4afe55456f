"""The NVSwitch fabric is not set up, so CUDA refuses to start."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"system not yet initialized",
    r"CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady",
    r"\berror:? 802\b",
    r"fabric manager is not (?:running|initialized)",
)

_UNIT = "nvidia-fabricmanager"
_START = (
    f"Start it: `systemctl enable --now {_UNIT}`.",
    "Wait until every GPU says Completed, then start the program again.",
)
_UNSETTLED = ("In Progress", "Not Started")


def examine(case: Case) -> Sign | None:
    """Look for NVSwitches without a running fabric manager of the driver's own version."""
    quote = case.find(*SYMPTOMS)
    smi = case.look(lambda host: host.smi)
    pci = case.look(lambda host: host.pci) or ()
    units = case.look(lambda host: host.units) or {}
    manager = case.look(lambda host: host.fabric_manager)
    driver = driver_of(case)
    has_switch = any(device.is_nvswitch for device in pci)
    unsettled = [gpu for gpu in smi.gpus if gpu.fabric_state in _UNSETTLED] if smi else []
    unit = units.get(_UNIT)
    seen = []
    is_other = bool(manager and manager.version and driver and manager.version != driver)
    is_stopped = unit is not None and unit.is_installed and not unit.is_active
    if has_switch and unit is not None and not unit.is_active:
        seen.append(f"{_UNIT} is {unit.active if unit.is_installed else 'not installed'} and the host has NVSwitches")
    if has_switch and manager and is_other:
        seen.append(f"fabric manager is {manager.version}, the driver {driver}")
    if unsettled:
        seen.append(f"the fabric of {len(unsettled)} GPUs is {unsettled[0].fabric_state}")
    if not seen:
        unseen = () if units else (f"whether it runs: `systemctl status {_UNIT}`",)
        return hint(quote, expected="fabric state Completed on every GPU", unseen=unseen)
    return Sign(
        confidence="high",
        seen=(*seen, *quoted(quote)),
        expected=f"fabric manager {driver or 'of the driver'}'s version running, fabric state Completed on every GPU",
        subjects=tuple(f"GPU {gpu.minor} ({gpu.pci})" for gpu in unsettled),
        fix=_START if is_stopped and not is_other else (),
    )
