"""What is the same for everybody who judges GPUs: their names, the models they can be, the switches between them."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache

from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import normalise_gpu
from provision.probe.output import Unreadable, read_or
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.pci import PciDevice
from provision.probe.snapshot import Snapshot

_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
_BOARD = re.compile(r"([0-9]{1,2})-GPU")


def name_gpu(gpu: SmiGpu) -> str:
    """Return how a person finds a GPU: ``GPU 3 (0000:5d:00.0)``."""
    return f"GPU {gpu.minor} ({gpu.pci})" if gpu.minor is not None else f"GPU {gpu.pci}"


def name_address(host: Snapshot | None, address: str | None) -> str:
    """Return how a person finds the device at a PCI address, with the GPU's number where anything tells it.

    Args:
        host: The target the address stands in; ``None`` where there is only text.
        address: In sysfs' spelling, or ``None`` where none was told.
    """
    if address is None:
        return "a device without an address"
    if host is None:
        return address
    for gpu in smi_gpus(host):
        if gpu.pci == address:
            return name_gpu(gpu)
    device = find_device(host, address)
    proc = read_or(lambda: next((gpu for gpu in host.driver_gpus if gpu.pci == address), None), None)
    if proc is not None and proc.minor is not None:
        return f"GPU {proc.minor} ({address})"
    is_gpu = proc is not None or (device is not None and device.is_nvidia_gpu)
    return f"GPU {address}" if is_gpu else address


def smi_gpus(host: Snapshot) -> tuple[SmiGpu, ...]:
    """Return the GPUs nvidia-smi lists, in its order; none where it did not answer."""
    return read_or(lambda: host.smi.gpus, ())


def gpu_addresses(host: Snapshot) -> frozenset[str]:
    """Return the addresses of all GPUs that any probe knows."""
    known = {gpu.pci for gpu in smi_gpus(host)}
    with suppress(Unreadable):
        known |= {device.address for device in host.pci if device.is_nvidia_gpu}
    with suppress(Unreadable):
        known |= {gpu.pci for gpu in host.driver_gpus}
    return frozenset(known)


def find_device(host: Snapshot, address: str) -> PciDevice | None:
    """Return the PCI device at an address, or ``None`` where there is none or the bus was not read."""
    return read_or(lambda: next((device for device in host.pci if device.address == address), None), None)


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


@lru_cache(maxsize=1024)
def _models_called(matrix: Matrix, name: str | None) -> tuple[Gpu, ...]:
    wanted = normalise_gpu(name or "")
    return tuple(
        gpu
        for gpu in matrix.gpus
        if wanted and wanted in {normalise_gpu(text) for text in (gpu.name, gpu.id, *gpu.aliases)}
    )


def has_visible_nvswitch(host: Snapshot) -> bool:
    """Tell whether NVSwitches show on the bus, themselves or through the network ports that manage them.

    Raises:
        Unreadable: Neither was seen, and the bus was not read.
    """
    with suppress(Unreadable):
        if any(port.is_switch_management for port in host.rdma_ports):
            return True
    return any(device.is_nvswitch for device in host.pci)


def has_nvswitch(host: Snapshot, matrix: Matrix) -> bool:
    """Tell whether NVSwitches join the GPUs of a machine.

    Switches of the fourth generation do not show as PCI devices of their own. There the GPUs tell: they have a state in
    the fabric, or are of a model whose board of so many GPUs is built with switches.

    Raises:
        Unreadable: Nothing tells it, and something that could was not read.

    Source: NVIDIA Fabric Manager user guide, systems using fourth generation NVSwitches.
    """
    reason: Unreadable | None = None
    try:
        if has_visible_nvswitch(host):
            return True
        devices = [device for device in host.pci if device.is_nvidia_gpu and not device.is_virtual_function]
    except Unreadable as error:
        reason, devices = error, []
    gpus = smi_gpus(host)
    candidates = (
        [find_models(matrix, name=gpu.name, device=find_device(host, gpu.pci)) for gpu in gpus]
        if gpus
        else [find_models(matrix, device=device) for device in devices]
    )
    for gpu, models in zip(gpus, candidates, strict=False):
        is_elsewhere = bool(models) and all(model.fabric_manager != "nvswitch" for model in models)
        if gpu.fabric_state is not None and not is_elsewhere:
            return True
    switched = [models for models in candidates if models and all(map(_is_switched, models))]
    if any(len(switched) >= min(map(_board_size, models)) for models in switched):
        return True
    if reason is not None:
        raise reason
    return False


def _is_switched(model: Gpu) -> bool:
    return model.fabric_manager == "nvswitch" and _BOARD.search(model.nvswitch or "") is not None


def _board_size(model: Gpu) -> int:
    found = _BOARD.search(model.nvswitch or "")
    return int(found[1]) if found else 0
