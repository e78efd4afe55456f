"""The NVSwitch fabric is not set up, so CUDA refuses to start."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import smi_gpus
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of
from provision.doctor.state import explain_faults
from provision.probe.gpus import find_device, find_models

SYMPTOMS = (
    r"system not yet initialized",
    r"CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady",
    r"\berror:? 802\b",
    r"fabric manager is not (?:running|initialized)",
    r"fabric manager .{0,60}interface version .{0,60}(?:don't|doesn't|does not) match",
    r"init(?:iali[sz]ation)? failure: 802\b",
    r"NVSwitch driver version .{0,60}(?:(?:don't|doesn't|does not) match|mismatch)",
    r"fabric.?manager\W.{0,60}failed to initiali[sz]e",
    r"[Ff]ailed to (?:start|initiali[sz]e) .{0,20}(?:NVSwitch|fabric ?manager)",
)

_UNIT = "nvidia-fabricmanager"
_START = f"Start it: `systemctl enable --now {_UNIT}`."
_WAIT = "Wait until every GPU says Completed, then start the program again."
_RESET = (
    "Take the machine out of the scheduler and end the programs on the GPUs.",
    "Reset all GPUs in one command: `nvidia-smi --gpu-reset`. Fabric manager set them up before it stopped, and "
    "started again without a reset it can leave them without multicast.",
)
_SUBNET_MANAGER = (
    "See that `nvlsm`, which sets up the switches of this generation, is installed.",
    "Load the module it talks through, and name it in /etc/modules-load.d for the next boot: `modprobe ib_umad`.",
)
_TRAYS = (
    "Fabric manager of such a rack runs on its NVLink switch trays: look there, not on this host.",
    "Look at the domain that shares memory between hosts: `systemctl status nvidia-imex`.",
    _WAIT,
)


def examine(case: Case) -> Sign | None:
    """Look for NVSwitches without a running fabric manager of the driver's own version."""
    quote = case.find(*SYMPTOMS)
    faults = case.faults("fabric.manager", "fabric.state")
    kinds = {fault.kind for fault in faults}
    if not faults:
        has_units = case.look(lambda host: host.units) is not None
        unseen = () if has_units else (f"whether it runs: `systemctl status {_UNIT}`",)
        return hint(quote, expected="fabric state Completed on every GPU", unseen=unseen)
    version = driver_of(case) or "of the driver"
    return explain_faults(
        case,
        faults,
        expected=f"fabric manager {version}'s version running, fabric state Completed on every GPU",
        quote=quote,
        fix=_steps(case, is_startable="stopped" in kinds and "version" not in kinds),
    )


def _steps(case: Case, *, is_startable: bool) -> tuple[str, ...]:
    """Return what to do on this very machine, nothing where the fact's own steps say it."""
    kinds = _facts_of(case, "fabric_manager")
    if kinds and kinds <= {"imex"}:
        return _TRAYS
    if not is_startable:
        return ()
    was_set_up = any(gpu.fabric_state == "Completed" for gpu in smi_gpus(case))
    has_subnet_manager = any("nvlsm" in detail for detail in _facts_of(case, "fabric_manager_detail"))
    return (*(_RESET if was_set_up else ()), *(_SUBNET_MANAGER if has_subnet_manager else ()), _START, _WAIT)


def _facts_of(case: Case, field: str) -> set[str]:
    """Return what the facts say of the models this target's GPUs can be."""
    host = case.host
    if host is None:
        return set()
    models = [
        model
        for gpu in smi_gpus(case)
        for model in find_models(case.matrix, name=gpu.name, device=find_device(host, gpu.pci))
    ]
    return {getattr(model, field) for model in models if getattr(model, field)}
