"""The kernel module is of the flavour the GPUs need, open or proprietary."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.parse.pci import PciDevice
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import find_models, list_gpu_devices, name_address
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the loaded flavour with what the facts say of each GPU on the bus, whether the driver sees it or not."""
    del expected
    is_open = host.driver.is_open
    flavour = "open" if is_open else "proprietary"
    against = "unsupported" if is_open else "required"
    wrong: list[str] = []
    unclear: list[str] = []
    devices = list_gpu_devices(host)
    for device in devices:
        words = _words(host, matrix, device)
        if words == {against}:
            wrong.append(name_address(host, device.address))
        elif not words or against in words:
            unclear.append(name_address(host, device.address))
    if wrong:
        needed = "proprietary" if is_open else "open"
        return failed(
            f"the {flavour} modules are loaded, and {', '.join(wrong)} works with the {needed} ones only",
            f"{needed} kernel modules",
            subjects=wrong,
        )
    if unclear:
        return unknown(f"the facts do not tell which modules {', '.join(unclear)} needs; the {flavour} ones are loaded")
    return passed(f"the {flavour} modules are loaded") if devices else unknown("no GPU is on the PCI bus")


def _words(host: Snapshot, matrix: Matrix, device: PciDevice) -> set[str]:
    """Return what ``open_modules`` can be for a GPU: of its model, else of all models of its architecture."""
    name = architecture = None
    try:
        seen = next((gpu for gpu in host.smi.gpus if gpu.pci == device.address), None)
    except Unreadable:
        seen = None
    if seen is not None:
        name, architecture = seen.name, seen.architecture
    models = find_models(matrix, name=name, device=device)
    if not models and architecture:
        family = architecture.split()[0].lower()
        models = tuple(gpu for gpu in matrix.gpus if gpu.architecture.lower() == family)
    return {gpu.open_modules for gpu in models if gpu.open_modules is not None}
