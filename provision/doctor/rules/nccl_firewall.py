"""A firewall drops the connections with which ranks find each other."""

from __future__ import annotations

import re

from provision.doctor.case import BRIDGE, Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.probe.parse.fabric_network import Firewall

_BRIDGE = re.compile(rf"\b{BRIDGE}")
"""No firewall keeps other hosts from a bridge of docker: there is no way to it."""

SYMPTOMS = (
    r"(?:connect|Connect) to \[?[0-9a-fA-F.:]{3,45}\]?<[0-9]{1,5}>.{0,30}(?:refused|timed out|No route to host)",
    r"NCCL WARN.{0,60}Call to connect.{0,60}(?:refused|timed out|No route to host)",
    r"socketPollConnect.{0,80}(?:refused|timed out|No route to host)",
    r"The (?:client|server) socket has (?:failed|timed out).{0,60}(?:connect|waiting)",
    r"Timed out after [0-9]{1,6} seconds waiting for clients",
    r"socketStartConnect.{0,120}failed|connect\(\) timed out\. Original timeout|"
    r"Software caused connection abort",
)


def examine(case: Case) -> Sign | None:
    """Look at what the other hosts answered, and whether this one drops what no rule names."""
    quote = next((quote for quote in case.find_all(*SYMPTOMS) if not _BRIDGE.search(quote.line)), None)
    silent = case.faults("net.ports")
    firewall = case.look(lambda host: host.firewall)
    expected = "every host of the job reaches every other on all ports of net.ipv4.ip_local_port_range"
    is_closed_here = bool(firewall and firewall.drops_by_default)
    seen = [fault.said for fault in silent[:4]]
    if is_closed_here and firewall:
        seen.append(f"{firewall.tool} drops what no rule allows")
    if silent or (quote and is_closed_here):
        return Sign(
            confidence="high" if is_closed_here or (silent and quote) else "medium",
            seen=(*seen, *quoted(quote)),
            expected=expected,
            subjects=tuple(sorted({fault.subject for fault in silent if fault.subject})),
        )
    if quote is None and firewall is not None and _shuts_out_ranks(case, firewall):
        return Sign(
            confidence="medium",
            seen=(
                *seen,
                f"{firewall.tool} accepts {_accepted(firewall)}, and the host has RDMA ports for jobs over hosts",
            ),
            expected=expected,
            unseen=("whether jobs run over several hosts, and whether the port answers: `nc -vz HOST PORT`",),
        )
    unseen = (
        *(() if firewall else ("this host's rules: `nft list ruleset` or `iptables -S`",)),
        *(() if case.is_well("net.ports") else ("whether the port answers: `nc -vz HOST PORT`",)),
    )
    return hint(quote, seen=seen, expected=expected, unseen=unseen)


def _shuts_out_ranks(case: Case, firewall: Firewall) -> bool:
    """Tell whether no rule lets in a network or many ports, on a host that is cabled for jobs over several hosts."""
    has_rdma = any(port.state == "ACTIVE" for port in case.look(lambda host: host.rdma_ports) or ())
    has_range = any("-" in port for port in firewall.allowed_ports)
    return bool(firewall.drops_by_default) and has_rdma and not firewall.allowed_sources and not has_range


def _accepted(firewall: Firewall) -> str:
    return f"only port {', '.join(firewall.allowed_ports[:4])}" if firewall.allowed_ports else "nothing"
