"""What checks of every GPU share: naming it, knowing its model, adding answers up without losing an unknown one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import normalise_gpu
from provision.probe.output import Unreadable
from provision.probe.parse.kernel_log import KernelEvent
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.pci import PciDevice
from provision.probe.snapshot import Snapshot
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = [
    "FieldReading",
    "count_words",
    "find_device",
    "find_models",
    "judge_field",
    "judge_gpus",
    "list_gpu_devices",
    "name_address",
    "name_gpu",
    "read_events",
    "read_field",
]

_BRACKETS = re.compile(r"\[([^\[\]]+)\]")


class FieldReading(NamedTuple):
    """One answer about one GPU: ``is_fine`` is ``None`` where there is none, and ``absence`` says why.

    ``absence`` is ``unsupported``, ``broken`` or ``absent``, as :func:`read_field` returns it.
    """

    gpu: SmiGpu
    is_fine: bool | None
    fault: str
    absence: str = ""


def name_gpu(gpu: SmiGpu) -> str:
    """Return how a person finds a GPU: ``GPU 3 (0000:5d:00.0)``."""
    return f"GPU {gpu.minor} ({gpu.pci})" if gpu.minor is not None else f"GPU {gpu.pci}"


def name_address(host: Snapshot, address: str | None) -> str:
    """Return how a person finds the device at a PCI address, with the GPU's number where nvidia-smi tells it."""
    if address is None:
        return "a device without an address"
    try:
        found = next((gpu for gpu in host.smi.gpus if gpu.pci == address), None)
    except Unreadable:
        found = None
    if found is not None:
        return name_gpu(found)
    device = find_device(host, address)
    return f"GPU {address}" if device is not None and device.is_nvidia_gpu else address


def count_words(count: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 GPU``, ``8 GPUs``."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def read_field(gpu: SmiGpu, field: str) -> tuple[Any, str]:
    """Return the value of a field, or ``None`` with the reason for its absence."""
    if field in gpu.broken:
        return None, "broken"
    if field in gpu.unsupported:
        return None, "unsupported"
    value = getattr(gpu, field)
    return (None, "absent") if value is None else (value, "")


def judge_field(
    gpus: Sequence[SmiGpu], field: str, find_fault: Callable[[Any], str | None], *, fine: str, expected: str
) -> Outcome:
    """Judge one field of every GPU.

    Args:
        gpus: All GPUs of the host.
        field: A field of ``SmiGpu``.
        find_fault: Value → what is wrong with it, a clause whose subject is the GPU, or ``None``.
        fine: What to say when all is well.
        expected: What should have been found.
    """
    readings = []
    for gpu in gpus:
        value, absence = read_field(gpu, field)
        fault = None if value is None else find_fault(value)
        readings.append(FieldReading(gpu, None if value is None else fault is None, fault or "", absence))
    return judge_gpus(readings, fine=fine, expected=expected)


def _say_faults(faults: Iterable[tuple[str, str]]) -> str:
    """Return faults as one sentence, the GPUs that have the same one together."""
    named: dict[str, dict[str, None]] = {}
    for name, fault in faults:
        named.setdefault(fault, {})[name] = None
    return "; ".join(
        f"{next(iter(names))} {fault}" if len(names) == 1 else f"each of {', '.join(names)} {fault}"
        for fault, names in named.items()
    )


def judge_gpus(readings: Sequence[FieldReading], *, fine: str, expected: str) -> Outcome:
    """Add answers up: a fault anywhere fails, a broken one is unknown, and only real answers make a pass.

    Args:
        readings: One or more a GPU.
        fine: What to say when all is well.
        expected: What should have been found.
    """
    if not readings:
        return unknown("nvidia-smi lists no GPU")
    wrong = [reading for reading in readings if reading.is_fine is False]
    if wrong:
        said = _say_faults((name_gpu(reading.gpu), reading.fault) for reading in wrong)
        return failed(said, expected, subjects=dict.fromkeys(name_gpu(reading.gpu) for reading in wrong))
    broken = [reading for reading in readings if reading.absence == "broken"]
    if broken:
        return unknown(f"{name_gpu(broken[0].gpu)} answers with an error")
    asked = {reading.gpu.pci for reading in readings}
    answered = {reading.gpu.pci for reading in readings if reading.is_fine}
    if answered:
        silent = len(asked) - len(answered)
        return passed(f"{fine}; {silent} of {len(asked)} GPUs do not have it" if silent else fine)
    if all(reading.absence == "unsupported" for reading in readings):
        return skipped("these GPUs do not have it")
    return skipped("this driver does not tell it")


def list_gpu_devices(host: Snapshot) -> tuple[PciDevice, ...]:
    """Return the GPUs on the PCI bus, without the virtual functions that a host hands to its guests.

    Raises:
        Unreadable: The bus was not read.
    """
    return tuple(device for device in host.pci if device.is_nvidia_gpu and not device.is_virtual_function)


def find_device(host: Snapshot, address: str) -> PciDevice | None:
    """Return the PCI device at an address, or ``None`` where there is none or the bus was not read."""
    try:
        return next((device for device in host.pci if device.address == address), None)
    except Unreadable:
        return None


def find_models(matrix: Matrix, *, name: str | None = None, device: PciDevice | None = None) -> tuple[Gpu, ...]:
    """Return the models of the facts that a GPU can be; none when the facts do not know it.

    Args:
        matrix: The facts.
        name: Product name as nvidia-smi prints it.
        device: The same GPU on the PCI bus: its id tells variants of one name apart, and stands alone where the driver
            does not see the GPU.
    """
    named = _models_called(matrix, name)
    numbered: tuple[Gpu, ...] = ()
    if device is not None:
        wanted = device.device.upper()
        numbered = tuple(gpu for gpu in matrix.gpus if (gpu.pci_device_id or "").upper() == wanted)
    if named and numbered:
        return tuple(gpu for gpu in named if gpu in numbered) or named
    if named or numbered:
        return named or numbered
    listed = _BRACKETS.findall(device.name or "") if device is not None else []
    return next((found for text in reversed(listed) if (found := _models_called(matrix, text))), ())


def _models_called(matrix: Matrix, name: str | None) -> tuple[Gpu, ...]:
    wanted = normalise_gpu(name or "")
    return tuple(
        gpu
        for gpu in matrix.gpus
        if wanted and wanted in {normalise_gpu(text) for text in (gpu.name, gpu.id, *gpu.aliases)}
    )


def read_events(host: Snapshot, *kinds: str) -> tuple[KernelEvent, ...]:
    """Return events of the kernel log since boot.

    Raises:
        Unreadable: The log was not read, or holds nothing: a kernel that loaded a driver has said so, and an emptied
            log proves no silence.
    """
    log = host.kernel_log
    if not log.lines:
        raise Unreadable("the kernel log holds no line", probe="kernel-log")
    return log.of(*kinds)
