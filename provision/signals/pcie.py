"""How the GPUs hang on the PCI bus."""

from __future__ import annotations

from provision.errors import first_of
from provision.matrix.load import Matrix
from provision.probe.gpus import smi_gpus
from provision.probe.links import find_translation
from provision.probe.output import Unreadable, read_or
from provision.probe.parse.frameworks import WorkOnGpu
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.pci import PciDevice, list_gpu_bridges
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import (
    FieldReading,
    fault_of,
    find_models,
    judge_gpus,
    list_gpu_devices,
    name_address,
    name_gpu,
)
from provision.signals.signal import Fault, Signal, failed, faulty, passed, skipped, unknown


def gpu_pcie_width(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare lanes in use with the plan, else with what the model gets by design, else with what the GPU could use."""
    listed = {gpu.pci: gpu for gpu in smi_gpus(host)}
    try:
        devices = {device.address: device for device in list_gpu_devices(host)}
        if not devices:
            return unknown("no GPU is on the PCI bus")
    except Unreadable:
        if not listed:
            raise
        devices = {}
    hidden: list[str] = []
    seen: list[int] = []
    faults: list[Fault] = []
    for address in devices or listed:
        device, gpu = devices.get(address), listed.get(address)
        now, most = _lanes_of(device, gpu)
        wanted = expected.pcie_width or _lanes_by_design(matrix, device, gpu) or most
        name = name_address(host, address)
        if now is not None and wanted is not None and now < wanted:
            faults.append(Fault(said=f"{name} uses x{now} of x{wanted}", subject=name))
        elif now is None or (most or expected.pcie_width) is None:
            hidden.append(name)
        else:
            seen.append(now)
    if faults:
        return faulty(faults, "all lanes of the slot")
    if hidden:
        machine = host.virtualization
        if machine.is_virtual_machine or machine.is_container:
            return skipped("a virtual machine does not show the lanes")
        return unknown(f"{hidden[0]} does not report its lanes")
    return passed(", ".join(sorted({f"x{lanes}" for lanes in seen})) + f" on {len(seen)} GPUs")


def _lanes_of(device: PciDevice | None, gpu: SmiGpu | None) -> tuple[int | None, int | None]:
    """Return the lanes in use and those that there could be, as the bus tells them, or nvidia-smi where that is fewer.

    Where the bus is shown and hides the lanes, what nvidia-smi says is that of another machine.
    """
    told = [] if device is not None and device.width is None else [gpu.pcie_width_current if gpu is not None else None]
    now = min(filter(None, (device.width if device is not None else None, *told)), default=None)
    most = device.width_max if device is not None else gpu.pcie_width_max if gpu is not None else None
    return now, most


def _lanes_by_design(matrix: Matrix, device: PciDevice | None, gpu: SmiGpu | None) -> int | None:
    """Return the lanes that clouds give a model, where the facts know of fewer than it could use."""
    models = find_models(matrix, name=gpu.name if gpu is not None else None, device=device)
    ids = {f"gpu.pcie.width.{model.id}" for model in models}
    return next((int(row.value) for row in matrix.rows("checks.toml", "limit") if row.id in ids), None)


_SHARED = "the highest that card and slot share"


def gpu_pcie_gen_load(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the generation seen while copies ran, or that of GPUs which are busy; at rest it drops by itself."""
    try:
        work = host.torch_work
    except Unreadable:
        faults = [
            fault_of(gpu, f"is at work at generation {gpu.pcie_gen_current} of {gpu.pcie_gen_max}", certainty="medium")
            for gpu in host.smi.gpus
            if (gpu.utilization_percent or 0) >= matrix.limit("doctor.busy")
            and (gpu.pcie_gen_current or 0) < (gpu.pcie_gen_max or 0)
            and gpu.pcie_gen_current is not None
        ]
        if not faults:
            raise
        return faulty(faults, _SHARED)
    if work.error is not None:
        return unknown(f"the copies did not begin: {work.error}")
    gpus = host.smi.gpus
    readings: list[FieldReading] = []
    generations: set[int] = set()
    for place, gpu in enumerate(gpus):
        seen = _generation_under_load(work.gpus, gpu, place)
        best = min(filter(None, (gpu.pcie_gen_device_max, gpu.pcie_gen_host_max)), default=gpu.pcie_gen_max)
        if seen is None:
            return unknown(f"not read: the PCIe generation of {name_gpu(gpu)} while it worked")
        absence = "unsupported" if "pcie_gen_max" in gpu.unsupported else "absent"
        is_fine = None if best is None else seen >= best
        readings.append(FieldReading(gpu, is_fine, f"ran at generation {seen} of {best} under load", absence))
        generations.add(seen)
    return judge_gpus(
        readings,
        fine=f"generation {' and '.join(str(generation) for generation in sorted(generations))} under load",
        expected=_SHARED,
    )


def _generation_under_load(worked: tuple[WorkOnGpu, ...], gpu: SmiGpu, place: int) -> int | None:
    """Return the generation under load; GPUs are matched by UUID, as frameworks may count them in another order."""
    by_uuid = {work.uuid: work for work in worked if work.uuid}
    by_place = {work.gpu: work for work in worked}
    work = by_uuid.get(gpu.uuid) if by_uuid and gpu.uuid else by_place.get(place)
    value = work.figures.get("pcie_gen_under_load") if work is not None else None
    return None if value is None else int(value)


_BRIDGES_SHOWN = 4


def gpu_iommu_acs(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for bridges that redirect requests, and for an IOMMU that translates them.

    Source: NCCL's troubleshooting page, PCI access control services.
    """
    translating = find_translation(host.command_line)
    above = _bridges_above_gpus(host)
    try:
        bridges = [
            device
            for device in host.lspci
            if device.class_code == "0604" and (above is None or device.address in above)
        ]
    except Unreadable as error:
        bridges, why = [], error.reason
    else:
        why = "lspci shows no bridge whose access control can be read; that takes root"
    redirecting = [device.address for device in bridges if device.is_acs_redirecting]
    faults = []
    if redirecting:
        said = f"ACS redirects at {first_of(redirecting, _BRIDGES_SHOWN)}"
        faults.append(Fault(said=said, kind="acs", certainty="medium"))
    if translating:
        said = f"the kernel runs with {' '.join(translating)}"
        faults.append(Fault(said=said, kind="iommu", certainty="medium"))
    if faults:
        return failed(
            "; ".join(fault.said for fault in faults),
            "ACS off on bridges, the IOMMU off or with iommu=pt",
            subjects=redirecting,
            faults=faults,
        )
    if all(device.is_acs_redirecting is None for device in bridges):
        return unknown(why)
    return passed(f"ACS redirects at none of {len(bridges)} bridges{'' if above is None else ' above GPUs'}")


def _bridges_above_gpus(host: Snapshot) -> frozenset[str] | None:
    """Return the bridges that GPUs hang on, or ``None`` where that is not told and each may be one."""
    return read_or(lambda: list_gpu_bridges(host.pci), None)
