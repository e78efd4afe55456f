"""Every GPU has its device nodes, and programs may open them."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.parse.system import DeviceNode
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import list_gpu_devices
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_WORLD = 0o006
_GROUP = 0o060


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for nvidiactl, nvidia-uvm and a node a GPU, readable and writable by everybody or by a group."""
    del expected, matrix
    if host.virtualization.kind == "wsl":
        return skipped("WSL reaches its GPUs through another device")
    nodes = {node.path: node for node in host.device_nodes}
    minors = _minors(host)
    if not minors:
        return unknown("nothing tells how many GPUs there are")
    wanted = [*(f"/dev/nvidia{minor}" for minor in minors), *_SHARED]
    missing = [path for path in wanted if path not in nodes]
    closed = [path for path in wanted if path in nodes and not _can_be_opened(nodes[path])]
    if missing or closed:
        faults = [f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"] if missing else []
        faults += [f"{path} has mode {nodes[path].mode or 0:04o} and belongs to root" for path in closed]
        return failed("; ".join(faults), "all nodes, open to everybody or to a group", subjects=[*missing, *closed])
    unclear = [path for path in wanted if nodes[path].mode is None]
    if unclear:
        return unknown(f"the mode of {unclear[0]} is not known")
    return passed(f"{len(wanted)} nodes for {len(minors)} GPUs, nvidiactl and nvidia-uvm included")


def _minors(host: Snapshot) -> list[int]:
    """Return the numbers of the GPUs' nodes.

    The kernel module knows them best; in a container its list may hold the GPUs of others, and nvidia-smi's does not.
    """
    readers = [_minors_of_module, _minors_of_smi]
    for read in reversed(readers) if host.virtualization.is_container else readers:
        try:
            if found := read(host):
                return sorted(found)
        except Unreadable:
            continue
    return list(range(len(list_gpu_devices(host))))


def _minors_of_module(host: Snapshot) -> list[int]:
    return [gpu.minor for gpu in host.driver_gpus if gpu.minor is not None and not gpu.is_excluded]


def _minors_of_smi(host: Snapshot) -> list[int]:
    return [gpu.minor for gpu in host.smi.gpus if gpu.minor is not None]


def _can_be_opened(node: DeviceNode) -> bool:
    mode = node.mode
    if mode is None:
        return True
    is_grouped = mode & _GROUP == _GROUP and node.group not in (None, "0", "root")
    return node.kind == "character" and (mode & _WORLD == _WORLD or is_grouped)
