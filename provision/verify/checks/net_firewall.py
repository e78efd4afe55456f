"""The firewall lets the hosts of the cluster talk to each other."""

from __future__ import annotations

from ipaddress import ip_network

from provision.matrix.load import Matrix
from provision.probe.parse.fabric_network import Firewall
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_ANYWHERE = ("anywhere", "any", "0.0.0.0/0", "::/0")


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for the cluster's network among the accepted sources, or for NCCL's ports among the accepted ones."""
    del matrix
    subnet, ports = expected.cluster_subnet, expected.nccl_ports
    if subnet is None and ports is None:
        return skipped("neither a network of the cluster nor ports of NCCL are planned")
    firewall = host.firewall
    if firewall.tool == "none":
        return passed("no firewall is set up")
    if firewall.drops_by_default is False:
        return passed(f"{firewall.tool} accepts what no rule names")
    if subnet is not None and any(_holds(source, subnet) for source in firewall.allowed_sources):
        return passed(f"{firewall.tool} accepts {subnet}")
    if ports is not None and any(_covers(allowed, ports) for allowed in firewall.allowed_ports):
        return passed(f"{firewall.tool} accepts ports {ports}")
    if firewall.drops_by_default is None:
        return unknown(f"the rules of {firewall.tool} do not tell what happens to other packets")
    return failed(
        f"{firewall.tool} drops what no rule accepts, and accepts {_describe(firewall)}",
        f"{subnet or f'ports {ports}'} accepted",
    )


def _holds(source: str, subnet: str) -> bool:
    if source.lower() in _ANYWHERE:
        return True
    try:
        wide, narrow = ip_network(source, strict=False), ip_network(subnet, strict=False)
    except ValueError:
        return False
    return wide.version == narrow.version and wide.supernet_of(narrow)  # type: ignore[arg-type]


def _covers(allowed: str, wanted: str) -> bool:
    outer, inner = _range(allowed), _range(wanted)
    return outer is not None and inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


def _range(text: str) -> tuple[int, int] | None:
    first, _, last = text.partition("-")
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in (first, last or first)):
        return None
    return int(first), int(last or first)


def _describe(firewall: Firewall) -> str:
    accepted = [*firewall.allowed_sources[:3], *(f"port {port}" for port in firewall.allowed_ports[:3])]
    return ", ".join(accepted) if accepted else "nothing"
