"""Every GPU uses all lanes its slot should give."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.parse.pci import PciDevice
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import find_models, list_gpu_devices, name_address
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare lanes in use with the plan, else with what the model gets by design, else with what the GPU could use."""
    devices = list_gpu_devices(host)
    if not devices:
        return unknown("no GPU is on the PCI bus")
    hidden = [device for device in devices if device.width is None or (device.width_max or expected.pcie_width) is None]
    narrow: dict[str, str] = {}
    for device in devices:
        wanted = expected.pcie_width or _by_design(host, matrix, device) or device.width_max
        if device.width is not None and wanted is not None and device.width < wanted:
            narrow[name_address(host, device.address)] = f"x{device.width} of x{wanted}"
    if narrow:
        said = "; ".join(f"{name} uses {lanes}" for name, lanes in narrow.items())
        return failed(said, "all lanes of the slot", subjects=narrow)
    if hidden:
        machine = host.virtualization
        if machine.is_virtual_machine or machine.is_container:
            return skipped("a virtual machine does not show the lanes")
        return unknown(f"{name_address(host, hidden[0].address)} does not tell its lanes")
    return passed(", ".join(sorted({f"x{device.width}" for device in devices})) + f" on {len(devices)} GPUs")


def _by_design(host: Snapshot, matrix: Matrix, device: PciDevice) -> int | None:
    """Return the lanes that clouds give a model, where the facts know of fewer than it could use."""
    try:
        name = next((gpu.name for gpu in host.smi.gpus if gpu.pci == device.address), None)
    except Unreadable:
        name = None
    ids = {f"gpu.pcie.width.{model.id}" for model in find_models(matrix, name=name, device=device)}
    return next((int(row.value) for row in matrix.rows("checks.toml", "limit") if row.id in ids), None)
