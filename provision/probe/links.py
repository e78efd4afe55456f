"""How the GPUs of a machine are joined, and which of their links may be the slow one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from provision.matrix.load import Matrix
from provision.matrix.query import NVLINK, PCIE, find_layout
from provision.probe.output import Unreadable
from provision.probe.parse.frameworks import GpuWork
from provision.probe.parse.measurements import BandwidthMatrix
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot

_PEER_TESTS = ("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce")
_PAIRS_SHOWN = 3


def topology_of(host: Snapshot, matrix: Matrix) -> str:
    """Tell how the GPUs of a host are joined: ``nvlink`` when every pair is, else PCIe with its generation.

    A board that is built with NVLink counts as such even when its links are down: it is judged by what it should do.

    Raises:
        Unreadable: nvidia-smi tells neither the GPUs nor their topology.
    """
    gpus = host.smi.gpus
    if gpus and all(find_layout(matrix, gpu.name) is not None for gpu in gpus):
        return NVLINK
    try:
        names = [device for device in host.topology.devices if device.startswith("GPU")]
        words = [host.topology.links.get((a, b), "") for a in names for b in names if a != b]
    except Unreadable:
        words = []
    if words and all(word.startswith("NV") for word in words):
        return NVLINK
    generations = [gpu.pcie_gen_max for gpu in gpus if gpu.pcie_gen_max is not None]
    return f"{PCIE}-gen{min(generations)}" if generations else PCIE


def pair_bandwidths(host: Snapshot) -> Mapping[tuple[int, int], float]:
    """Return GB/s from one GPU to another by their numbers, of the best tool that measured them.

    Raises:
        Unreadable: Nothing measured them.
    """
    try:
        tests = {test.name: test for test in host.nvbandwidth}
    except Unreadable as error:
        reason = error
    else:
        for name in _PEER_TESTS:
            if name in tests and (pairs := _pairs(tests[name])):
                return pairs
        reason = Unreadable("nvbandwidth measured no copy between GPUs", probe="nvbandwidth")
    for payload in ("torch_work", "torch_nccl"):
        try:
            work: GpuWork = getattr(host, payload)
        except Unreadable:
            continue
        if work.pairs:
            return work.pairs
    raise Unreadable(reason.reason, probe=reason.probe, status=reason.status)


def _pairs(test: BandwidthMatrix) -> dict[tuple[int, int], float]:
    return {pair: value for pair, value in test.cells.items() if value is not None and pair[0] != pair[1]}


def slowest_pairs(pairs: Mapping[tuple[int, int], float], percent: float) -> tuple[tuple[tuple[int, int], float], ...]:
    """Return the pairs that fall behind the median of all, slowest first.

    Args:
        pairs: (from, to) → GB/s.
        percent: How far below the median a pair must be.
    """
    if not pairs:
        return ()
    least = median(pairs.values()) * (1 - percent / 100)
    slow = [(pair, value) for pair, value in pairs.items() if value < least]
    return tuple(sorted(slow, key=lambda item: (item[1], item[0])))


def describe_slow_links(host: Snapshot, matrix: Matrix) -> str:
    """Return which link may be the slow one, in the words of a report; empty where nothing stands out."""
    found = [*find_slow_pairs(host, matrix), *find_inactive_links(host, matrix), *find_narrow_slots(host)]
    return ", ".join(found)


def find_slow_pairs(host: Snapshot, matrix: Matrix) -> Iterator[str]:
    """Yield the pairs of GPUs between which copies are slow, none where nothing measured them."""
    try:
        pairs = pair_bandwidths(host)
    except Unreadable:
        return
    slow = slowest_pairs(pairs, matrix.limit("performance.slow-pair"))
    for (a, b), value in slow[:_PAIRS_SHOWN]:
        yield f"GPU {a} to GPU {b} copies {value:.1f} GB/s where the median is {median(pairs.values()):.1f}"
    if len(slow) > _PAIRS_SHOWN:
        yield f"{len(slow) - _PAIRS_SHOWN} more pairs are slow"


def find_inactive_links(host: Snapshot, matrix: Matrix) -> Iterator[str]:
    """Yield the GPUs with NVLinks that are down, of a board that is built with them."""
    try:
        if not any(find_layout(matrix, gpu.name) for gpu in host.smi.gpus):
            return
        states = host.nvlinks
    except Unreadable:
        return
    for state in states:
        down = [str(link) for link, speed in state.links.items() if speed is None]
        if down:
            yield f"NVLink {', '.join(down)} of GPU {state.gpu} is inactive"


def find_narrow_slots(host: Snapshot) -> Iterator[str]:
    """Yield the GPUs that run on fewer PCIe lanes than they could."""
    try:
        gpus = host.smi.gpus
    except Unreadable:
        return
    for index, gpu in enumerate(gpus):
        if _is_narrow(gpu):
            yield f"GPU {index} ({gpu.pci}) runs on {gpu.pcie_width_current} of {gpu.pcie_width_max} PCIe lanes"


def _is_narrow(gpu: SmiGpu) -> bool:
    width, widest = gpu.pcie_width_current, gpu.pcie_width_max
    return width is not None and widest is not None and width < widest


def find_translation(command_line: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kernel's parameters that make an IOMMU translate addresses; none where it passes them through.

    Args:
        command_line: Name → value, of the kernel's parameters.

    Source: NCCL's troubleshooting page, PCI access control services.
    """
    is_passing = command_line.get("iommu") in ("pt", "off") or command_line.get("iommu.passthrough") == "1"
    translating = [
        f"{name}=on"
        for name in ("intel_iommu", "amd_iommu")
        if command_line.get(name, "").split(",")[0] in ("on", "force", "force_enable") and not is_passing
    ]
    if command_line.get("iommu") == "force":
        translating.append("iommu=force")
    return tuple(translating)
