"""What checks of every GPU share: naming it, knowing its model, adding answers up without losing an unknown one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from provision.matrix.load import Matrix
from provision.probe.gpus import find_device, find_models, has_nvswitch, name_address, name_gpu, smi_gpus
from provision.probe.output import Unreadable, read_or
from provision.probe.parse.kernel_log import KernelEvent
from provision.probe.parse.nvidia_smi import NOT_LISTED, Smi, SmiGpu
from provision.probe.parse.pci import PciDevice
from provision.probe.snapshot import Snapshot
from provision.signals.signal import Fault, Signal, failed, passed, skipped, unknown
from provision.versions import branch_of

__all__ = [
    "FieldReading",
    "count_words",
    "fault_of",
    "find_device",
    "find_models",
    "has_gpu",
    "has_nvswitch",
    "is_field_told",
    "is_for_servers",
    "judge_field",
    "judge_gpus",
    "list_driven_devices",
    "list_gpu_devices",
    "name_address",
    "name_gpu",
    "read_events",
    "read_field",
    "require_whole_log",
]


class FieldReading(NamedTuple):
    """One answer about one GPU: ``is_fine`` is ``None`` where there is none, and ``absence`` says why.

    ``absence`` is ``unsupported``, ``broken``, ``unread`` or ``absent``, as :func:`read_field` returns it. ``field``
    tells answers to several questions about one GPU apart. ``certainty`` says how sure a fault is, and ``detail`` goes
    on where ``fault`` ends, for whoever asks about this GPU alone.
    """

    gpu: SmiGpu
    is_fine: bool | None
    fault: str
    absence: str = ""
    field: str = ""
    certainty: str = "high"
    detail: str = ""


def count_words(count: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 GPU``, ``8 GPUs``."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def read_field(gpu: SmiGpu, field: str) -> tuple[Any, str]:
    """Return the value of a field, or ``None`` with the reason for its absence."""
    if field in gpu.broken:
        return None, "broken"
    if field in dict(gpu.unread):
        return None, "unread"
    if field in gpu.unsupported:
        return None, "unsupported"
    value = getattr(gpu, field)
    return (None, "absent") if value is None else (value, "")


def judge_field(
    gpus: Sequence[SmiGpu],
    field: str,
    find_fault: Callable[[Any], str | None],
    *,
    fine: str,
    expected: str,
    is_told: bool = True,
    certainty: str = "high",
) -> Signal:
    """Judge one field of every GPU.

    Args:
        gpus: All GPUs of the host.
        field: A field of ``SmiGpu``.
        find_fault: Value → what is wrong with it, a clause whose subject is the GPU, or ``None``.
        fine: What to say when all is well.
        expected: What should have been found.
        is_told: As :func:`judge_gpus` takes it.
        certainty: How sure a fault is.
    """
    readings = []
    for gpu in gpus:
        value, absence = read_field(gpu, field)
        fault = None if value is None else find_fault(value)
        is_fine = None if value is None else fault is None
        readings.append(FieldReading(gpu, is_fine, fault or "", absence, field, certainty))
    return judge_gpus(readings, fine=fine, expected=expected, is_told=is_told)


def is_field_told(smi: Smi, matrix: Matrix, field: str) -> bool:
    """Tell whether a driver of this branch has a field in its listing; where it is not there then, something is wrong.

    Args:
        smi: Names the driver.
        matrix: Knows the first branch, as the limit ``nvidia-smi.FIELD``.
        field: Name of the field in that limit.
    """
    if smi.driver_version is None:
        return True
    try:
        return branch_of(smi.driver_version) >= matrix.limit(f"nvidia-smi.{field}")
    except ValueError:
        return True


def _say_faults(faults: Iterable[tuple[str, str]]) -> str:
    """Return faults as one sentence, the GPUs that have the same one together."""
    named: dict[str, dict[str, None]] = {}
    for name, fault in faults:
        named.setdefault(fault, {})[name] = None
    return "; ".join(
        f"{next(iter(names))} {fault}" if len(names) == 1 else f"each of {', '.join(names)} {fault}"
        for fault, names in named.items()
    )


def judge_gpus(
    readings: Sequence[FieldReading],
    *,
    fine: str,
    expected: str,
    is_told: bool = True,
    asides: Iterable[Fault] = (),
) -> Signal:
    """Add answers up: a fault anywhere fails, a broken one is unknown, and only real answers make a pass.

    A GPU without an answer that another of its model gives is unknown too: what all of a model lack they do not have,
    what one of them lacks it does not tell.

    Args:
        readings: One or more a GPU.
        fine: What to say when all is well.
        expected: What should have been found.
        is_told: Whether this driver's listing has it; where it then lacks it, that is unknown and no skip.
        asides: What is wrong besides and not enough to fail.
    """
    if not readings:
        return unknown("nvidia-smi lists no GPU")
    wrong = [reading for reading in readings if reading.is_fine is False]
    if wrong:
        said = _say_faults((name_gpu(reading.gpu), reading.fault) for reading in wrong)
        faults = [
            fault_of(reading.gpu, f"{reading.fault}{reading.detail}", reading.field, reading.certainty)
            for reading in wrong
        ]
        subjects = dict.fromkeys(fault.subject for fault in faults)
        return failed(said, expected, subjects=subjects, faults=(*faults, *asides))
    broken = [reading for reading in readings if reading.absence == "broken"]
    if broken:
        return unknown(f"{name_gpu(broken[0].gpu)} answers with an error")
    unread = [reading for reading in readings if reading.absence == "unread"]
    if unread:
        words = dict(unread[0].gpu.unread)
        said = words.get(unread[0].field) or ", ".join(words.values())
        if said == NOT_LISTED:
            return unknown(f"{name_gpu(unread[0].gpu)}: the table of nvidia-smi has no column for it")
        return unknown(f"{name_gpu(unread[0].gpu)}: nvidia-smi says `{said}`, which no known driver says there")
    if (silent_gpu := _find_silent(readings)) is not None:
        return unknown(f"{name_gpu(silent_gpu)} does not report it, and others of its model do")
    asked = {reading.gpu.pci for reading in readings}
    answered = {reading.gpu.pci for reading in readings if reading.is_fine}
    if answered:
        silent = len(asked) - len(answered)
        return passed(f"{fine}; {silent} of {len(asked)} GPUs do not have it" if silent else fine, faults=asides)
    if any(reading.absence == "unsupported" for reading in readings):
        return skipped("these GPUs do not have it")
    return unknown("nvidia-smi does not report it") if is_told else skipped("this driver does not report it")


def fault_of(gpu: SmiGpu, said: str, kind: str = "", certainty: str = "high") -> Fault:
    """Return a fault of a GPU from a clause whose subject it is."""
    return Fault(said=f"{name_gpu(gpu)} {said}", subject=name_gpu(gpu), kind=kind, certainty=certainty)


def _find_silent(readings: Sequence[FieldReading]) -> SmiGpu | None:
    """Return the first GPU that does not answer what another of its kind does."""
    answers = [reading for reading in readings if reading.is_fine is not None]
    answered = {(reading.gpu.pci, reading.field) for reading in answers}
    told = {(reading.gpu.name, reading.field, reading.gpu.mig_current) for reading in answers}
    told |= {(name, field, None) for name, field, _ in told}
    return next(
        (
            reading.gpu
            for reading in readings
            if (reading.gpu.pci, reading.field) not in answered
            # What MIG divides tells less by design, so it is compared with its like.
            and (reading.gpu.name, reading.field, reading.gpu.mig_current) in told
        ),
        None,
    )


def is_for_servers(gpu: SmiGpu, matrix: Matrix) -> bool:
    """Tell whether the facts know a GPU as one of the data centre."""
    return any(model.segment == "datacenter" for model in find_models(matrix, name=gpu.name)[:1])


def has_gpu(host: Snapshot) -> bool | None:
    """Tell whether a machine has an NVIDIA GPU, by nvidia-smi or by the PCI bus; ``None`` where neither tells."""
    if smi_gpus(host):
        return True
    return read_or(lambda: any(device.is_nvidia_gpu for device in host.pci), None)


def list_driven_devices(host: Snapshot) -> tuple[PciDevice, ...]:
    """Return the GPUs on the PCI bus that the driver should have: not those that wait for a guest.

    Raises:
        Unreadable: The bus was not read.
    """
    return tuple(device for device in list_gpu_devices(host) if device.driver not in ("vfio-pci", "pci-stub"))


def list_gpu_devices(host: Snapshot) -> tuple[PciDevice, ...]:
    """Return the GPUs on the PCI bus, without the virtual functions that a host hands to its guests.

    Raises:
        Unreadable: The bus was not read.
    """
    return tuple(device for device in host.pci if device.is_nvidia_gpu and not device.is_virtual_function)


def read_events(host: Snapshot, *kinds: str) -> tuple[KernelEvent, ...]:
    """Return events of the kernel log since boot.

    Whoever takes those that are there for harmless asks :func:`require_whole_log` before it lets them pass.

    Raises:
        Unreadable: The log was not read, or holds nothing: a kernel that loaded a driver has said so, and an emptied
            log proves no silence. Or it holds none of these events and does not reach back to boot.
    """
    log = host.kernel_log
    if not log.lines:
        raise Unreadable("the kernel log holds no line", probe="kernel-log")
    found = log.of(*kinds)
    if not found:
        require_whole_log(host)
    return found


def require_whole_log(host: Snapshot) -> None:
    """Let pass a kernel log that holds all since boot.

    Raises:
        Unreadable: It was not read, or its beginning was overwritten or left out.
    """
    if not host.kernel_log.is_whole:
        raise Unreadable(
            "the kernel log does not hold all since boot, and what is missing may tell of a fault", probe="kernel-log"
        )
