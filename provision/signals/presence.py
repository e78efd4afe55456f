"""Which GPUs there are, and whether they answer."""

from __future__ import annotations

import re
from contextlib import suppress

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus, normalise_gpu
from provision.probe.output import ABSENT, FAILED, Unreadable
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import (
    FieldReading,
    count_words,
    fault_of,
    find_device,
    find_models,
    is_field_told,
    judge_field,
    judge_gpus,
    list_driven_devices,
    list_gpu_devices,
    name_address,
    name_gpu,
    read_field,
)
from provision.signals.signal import Fault, Signal, failed, faulty, passed, skipped, unknown

_EXIT_CODES = {
    2: "an argument it does not know",
    3: "an operation that is not available",
    4: "no permission",
    6: "no GPU found",
    8: "a GPU without its external power cables",
    9: "the driver is not loaded",
    11: "an interrupt problem of a GPU",
    12: "the NVML library is missing",
    13: "a function missing in the NVML library",
    14: "a damaged InfoROM",
    15: "a GPU fallen off the bus",
    16: "a GPU that needs a reset",
    17: "the control device blocked by the operating system",
    18: "driver and library of different versions",
}
"""Exit code of nvidia-smi → what it means.

Source: NVML's return codes, which nvidia-smi ends with.
"""


def gpu_smi_ok(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Run it, and read what it prints."""
    output = host.output("nvidia-smi-xml")
    if output.status == FAILED:
        lines = f"{output.error}\n{output.text}".splitlines()
        said = next((line.strip() for line in lines if line.strip() and not line.startswith("<")), "")
        meaning = f" ({_EXIT_CODES[output.code]})" if output.code in _EXIT_CODES else ""
        return failed(f"nvidia-smi ended with {output.code}{meaning}{': ' if said else ''}{said}", "an answer")
    smi = host.smi
    if not smi.gpus:
        return failed("nvidia-smi answers and lists no GPU", "at least one GPU")
    driver = f", driver {smi.driver_version}" if smi.driver_version is not None else ""
    return passed(f"nvidia-smi answers for {count_words(len(smi.gpus), 'GPU')}{driver}")


def gpu_count(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the three; in a container or sandbox, which gets some of the host's GPUs, only with the plan."""
    try:
        smi = host.smi
    except Unreadable:
        missing = _not_offered(host)
        if not missing:
            raise
        return faulty([_missing(host, address) for address in missing], "every GPU of the PCI bus")
    listed = {gpu.pci for gpu in smi.gpus}
    seen = f"nvidia-smi lists {count_words(len(smi.gpus), 'GPU')}"
    is_shared = host.virtualization.is_container or host.virtualization.kind == "wsl" or _has_no_bus(host, expected)
    devices = [] if is_shared else [device.address for device in list_driven_devices(host)]
    missing = [address for address in devices if address not in listed]
    if missing:
        return failed(
            f"{seen}, and {', '.join(missing)} is on the PCI bus and not among them",
            f"{count_words(max(len(devices), expected.gpus or 0), 'GPU')}",
            subjects=[f"GPU {address}" for address in missing],
            faults=[_missing(host, address) for address in missing],
        )
    if smi.attached is not None and smi.attached != len(smi.gpus):
        return failed(f"{seen} and says that {smi.attached} are attached", "one number")
    if expected.gpus is not None and len(smi.gpus) != expected.gpus:
        return failed(seen, count_words(expected.gpus, "GPU"))
    if not is_shared and len(devices) != len(smi.gpus):
        return failed(f"{seen}, the PCI bus {len(devices)}", "one number")
    if not smi.gpus:
        return failed(seen, "at least one")
    return passed(seen)


def _missing(host: Snapshot, address: str) -> Fault:
    name = name_address(host, address)
    return Fault(said=f"{name} is on the PCI bus, and the driver does not offer it", subject=name, kind="missing")


def _not_offered(host: Snapshot) -> list[str]:
    """Return the GPUs that the kernel module does not list, where nvidia-smi cannot be asked; none in a container."""
    try:
        offered = {gpu.pci for gpu in host.driver_gpus}
        devices = () if host.virtualization.is_container else list_driven_devices(host)
    except Unreadable:
        return []
    return [device.address for device in devices if device.address not in offered]


def _has_no_bus(host: Snapshot, expected: Expectation) -> bool:
    """Tell whether no PCI bus is shown, as in a sandbox, and a plan says how many GPUs there should be."""
    return expected.gpus is not None and host.output("pci").status == ABSENT


_FALLEN = "ff"
"""What the revision of a device reads as that no longer answers; its class may read likewise."""
_NO_CLASS = "ffff"


def gpu_pci_count(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count NVIDIA display and 3D controllers, those that answer."""
    found = list_gpu_devices(host)
    fallen = _fallen_devices(host)
    answering = [device for device in found if device.address not in fallen]
    planned = "at least one" if expected.gpus is None else str(expected.gpus)
    if fallen:
        return failed(
            f"{count_words(len(answering), 'GPU')}, and {', '.join(fallen)} no longer answers",
            planned,
            subjects=[f"GPU {address}" for address in fallen],
            faults=[
                Fault(
                    said=f"{name_address(host, address)} reads as a device with revision {_FALLEN}",
                    subject=name_address(host, address),
                    kind="fallen",
                )
                for address in fallen
            ],
        )
    if not found and expected.gpus is None and host.virtualization.kind == "wsl":
        return skipped("WSL does not show the PCI bus")
    seen = count_words(len(found), "GPU")
    if len(found) == expected.gpus or (found and expected.gpus is None):
        return passed(f"{seen} on the PCI bus")
    there = f": {', '.join(device.address for device in found)}" if found else ""
    return failed(f"{seen} on the PCI bus{there}", planned)


def _fallen_devices(host: Snapshot) -> tuple[str, ...]:
    """Return the addresses of GPUs that no longer answer: lspci asks the device, the kernel may remember it."""
    devices = list(host.pci)
    with suppress(Unreadable):
        devices += host.lspci
    fallen = [device for device in devices if device.revision == _FALLEN]
    gpus = (device for device in fallen if device.is_nvidia_gpu or device.class_code == _NO_CLASS)
    return tuple(dict.fromkeys(device.address for device in gpus))


def gpu_model(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare as models of the facts, so that any spelling of the plan will do.

    A name that the facts do not know is compared letter by letter.
    """
    if expected.gpu is None:
        return skipped("no model is planned")
    try:
        wanted = find_gpus(matrix, expected.gpu)
    except ProvisionError:
        wanted = ()
    readings = []
    for gpu in host.smi.gpus:
        name, absence = read_field(gpu, "name")
        if name is None:
            readings.append(FieldReading(gpu, None, "", absence or "broken"))
            continue
        models = find_models(matrix, name=name, device=find_device(host, gpu.pci))
        if normalise_gpu(name) == normalise_gpu(expected.gpu) or any(model in wanted for model in models):
            readings.append(FieldReading(gpu, True, ""))
        elif wanted and models:
            readings.append(FieldReading(gpu, False, f"is {name}"))
        else:
            unfamiliar = name if wanted else expected.gpu
            return unknown(
                f"the facts know no GPU called {unfamiliar}, so {name} and {expected.gpu} cannot be compared"
            )
    names = sorted({gpu.name for gpu in host.smi.gpus if gpu.name})
    return judge_gpus(readings, fine=", ".join(names), expected=expected.gpu)


_LOST_WORDS = ("gpu is lost", "unable to determine the device handle", "fallen off the bus", "device is lost")
_ADDRESS = re.compile(r"\b(?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\b")
_SAID_KEPT = 20_000
_VITAL = (
    "temperature_c",
    "memory_total_mib",
    "performance_state",
    "power_draw_w",
    "sm_clock_mhz",
    "utilization_percent",
)
"""Of these even a GPU that a guest, MIG or unified memory tells little about has some."""


def gpu_lost(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for errors in place of values, and for nvidia-smi giving up over one GPU.

    Errors beside real values may pass; a GPU that tells nothing while its like does is gone.
    """
    output = host.output("nvidia-smi-xml")
    if output.status == FAILED:
        said = f"{output.error[:_SAID_KEPT]}\n{output.text[:_SAID_KEPT]}"
        line = next(
            (row.strip() for row in said.splitlines() if any(word in row.lower() for word in _LOST_WORDS)), None
        )
        if line is not None:
            lost = sorted({f"GPU {address.lower()}" for address in _ADDRESS.findall(line)})
            return failed(f"nvidia-smi says: {line}", "every GPU answers", subjects=lost)
    gpus = host.smi.gpus
    if not gpus:
        return unknown("nvidia-smi lists no GPU")
    telling = {gpu.name for gpu in gpus if _tells(gpu)}
    faults: list[Fault] = []
    for gpu in gpus:
        device = find_device(host, gpu.pci)
        if device is not None and device.revision == _FALLEN:
            faults.append(fault_of(gpu, "no longer answers on the PCI bus"))
        elif gpu.broken:
            said = f"gives errors for {', '.join(sorted(gpu.broken)[:4])}"
            faults.append(fault_of(gpu, said, certainty="low" if _tells(gpu) else "high"))
        elif not _tells(gpu):
            is_sure = gpu.name in telling or (gpu.name is None and bool(telling))
            said = "tells neither temperature nor memory, power, clocks or load"
            faults.append(fault_of(gpu, said, certainty="high" if is_sure else "medium"))
    if faults:
        return faulty(faults, "a value for each field")
    for gpu in gpus:
        for field, said in gpu.unread:
            return unknown(f"{name_gpu(gpu)}: nvidia-smi says `{said}` of {field}, which no known driver says there")
    return passed(f"all {len(gpus)} GPUs answer")


def _tells(gpu: SmiGpu) -> bool:
    return any(getattr(gpu, field) is not None for field in _VITAL)


def gpu_recovery_action(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Read what the driver itself asks for, from the branch on that says it."""
    return judge_field(
        host.smi.gpus,
        "recovery_action",
        lambda action: None if action.lower() in ("none", "n/a") else f"asks for: {action}",
        fine="no GPU asks for a recovery action",
        expected="None",
        is_told=is_field_told(host.smi, matrix, "recovery-action"),
    )
