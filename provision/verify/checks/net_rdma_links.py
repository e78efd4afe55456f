"""Every RDMA port is up, at the rate it should have."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.query import find_rdma_rate
from provision.probe.gpus import has_nvswitch, has_visible_nvswitch
from provision.probe.output import Unreadable
from provision.probe.parse.fabric_network import RdmaPort
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.verify.work import counted

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge every port where a rate is planned; else those of InfiniBand, whose cables are seldom left out."""
    ports = tuple(port for port in host.rdma_ports if not port.is_switch_management)
    planned = expected.rdma_gbit
    if not ports:
        return failed("there is no RDMA device", f"ports of {planned} Gb/s" if planned else "active ports")
    least = planned or _usual_rate(host, matrix)
    should = f"ACTIVE{f', {least:g} Gb/s or more' if least else ''}"
    judged = ports if planned else tuple(port for port in ports if port.layer == "InfiniBand")
    if not judged:
        active = [port for port in ports if port.state == "ACTIVE"]
        if not active:
            return failed(f"none of {len(ports)} RDMA ports is active", should, subjects=map(_name, ports))
        return passed(f"{len(active)} of {len(ports)} RDMA ports over Ethernet are active")
    faults = {_name(port): fault for port in judged if (fault := _fault(port, least))}
    # Ports that manage NVSwitches look like network ports to whoever may not read the adapters' product data.
    unclear = [_name(port) for port in judged if _name(port) in faults and port.is_switch_management is None]
    if unclear and len(unclear) == len(faults) and _hides_switches(host, matrix):
        said = ", ".join(f"{name} {faults[name]}" for name in unclear)
        return unknown(f"{said}, and whether these ports manage the NVSwitches is not known; reading it takes root")
    if faults:
        return failed("; ".join(f"{name} {fault}" for name, fault in faults.items()), should, subjects=faults)
    silent = [port for port in judged if port.rate_gbit is None]
    if silent and least:
        return unknown(f"{_name(silent[0])} does not tell its rate")
    rates = " and ".join(sorted({f"{port.rate_gbit:g}" for port in judged if port.rate_gbit is not None}))
    return passed(f"{len(judged)} of {counted(len(ports), 'port')} active{f' at {rates} Gb/s' if rates else ''}")


def _name(port: RdmaPort) -> str:
    return f"{port.device}/{port.port}"


def _fault(port: RdmaPort, least: float | None) -> str:
    if port.state != "ACTIVE":
        return f"is {port.state}{f' ({port.physical})' if port.physical else ''}"
    if least and port.rate_gbit is not None and port.rate_gbit < least:
        return f"runs at {port.rate_gbit:g} Gb/s"
    return ""


def _hides_switches(host: Snapshot, matrix: Matrix) -> bool:
    """Tell whether the machine has NVSwitches that the bus does not show."""
    try:
        return has_nvswitch(host, matrix) and not has_visible_nvswitch(host)
    except Unreadable:
        return False


def _usual_rate(host: Snapshot, matrix: Matrix) -> float | None:
    """Return the rate that machines with such GPUs are sold with, or ``None`` where the facts tell none."""
    try:
        return find_rdma_rate(matrix, {gpu.name for gpu in host.smi.gpus})
    except Unreadable:
        return None
