"""Packets of RDMA over Ethernet do not arrive: a wrong address index, or a network that drops."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"NET/IBP?\s?: ?Got completion from peer.{0,80}status=(?:IBV_WC_RETRY_EXC_ERR\(?)?12\b",
    r"NET/IBP?\s?: ?Got completion with error 12\b",
    r"IBV_WC_RETRY_EXC_ERR|IBV_WC_RNR_RETRY_EXC_ERR",
    r"transport retry counter exceeded",
    r"Call to ibv_modify_qp failed.{0,60}(?:Invalid argument|timed out|Network is unreachable)",
    r"Call to ibv_modify_qp failed|\bibv_modify_qp\b.{0,40}\b(?:110\b|ETIMEDOUT|timed out)",
    r"Got completion .{0,80}(?:error|status=?)\W{0,3}\w{0,24}\W{0,2}(?:5|10|12|13)\b",
)


def examine(case: Case) -> Sign | None:
    """Look whether the ports are Ethernet; over InfiniBand the same message means a cable or a peer."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    ports = case.look(lambda host: host.rdma_ports)
    environment = case.look(lambda host: host.environment) or {}
    active = [port for port in ports or () if port.state == "ACTIVE"]
    ethernet = [port for port in active if port.layer == "Ethernet"]
    seen = [f"{len(ethernet)} active ports are Ethernet ({ethernet[0].device} first)"] if ethernet else []
    index = environment.get("NCCL_IB_GID_INDEX")
    if index is not None:
        seen.append(f"NCCL_IB_GID_INDEX is {index}")
    if active and not ethernet:
        seen.append("all active ports are InfiniBand, where this means a bad link or a dead peer")
    return hint(
        quote,
        confidence="low" if active and not ethernet else "medium",
        seen=seen,
        expected="the index of a RoCE v2 address, and a network that does not drop RDMA",
        unseen=(
            *(() if ports is not None else ("whether the ports are Ethernet: `ibstat`",)),
            "the addresses behind the indexes: `show_gids`",
            "pauses and drops on the port: `ethtool -S NAME | grep -E 'pause|discard'`",
        ),
    )
