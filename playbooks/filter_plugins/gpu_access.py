"""Filters that turn lists of networks into firewall rules, and refuse those that would shut the controller out."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

TABLE = "provision"
_AUDIT_RULE = re.compile(r"-[wa] [\x20-\x7e]+")
_TLS_NAME = re.compile(r"(DNS|IP):[0-9A-Za-z*][0-9A-Za-z.:-]*")
_PATH = re.compile(r"/[\w./+-]+")


def read_networks(networks: Iterable[Any], variable: str = "networks") -> list[Any]:
    """Return addresses and networks as objects, merged, IPv4 before IPv6.

    Raises:
        AnsibleFilterError: One of them is not an address; all that are not are named.
    """
    if isinstance(networks, str):
        raise AnsibleFilterError(f"{variable} must be a list of networks, not the text {networks!r}")
    found: list[Any] = []
    problems = []
    for item in networks:
        try:
            found.append(ipaddress.ip_network(str(item), strict=False))
        except ValueError:
            problems.append(repr(item))
    if problems:
        raise AnsibleFilterError(f"{variable}: {', '.join(problems)} is not an address or network, as in 192.0.2.0/24")
    return [
        network
        for version in (4, 6)
        for network in ipaddress.collapse_addresses(row for row in found if row.version == version)
    ]


def write_rules(services: Iterable[dict[str, Any]]) -> str:
    """Return the text of a table that lets only some networks reach some ports, empty where nothing is restricted.

    Args:
        services: Rows with ``name``, ``networks``, ``ports`` and ``variable`` for messages; one without networks is
            not restricted.
    """
    sets, jumps, chains = [], [], []
    for service in services:
        name = service["name"]
        networks = read_networks(service["networks"], service["variable"])
        if not networks:
            continue
        ports = sorted({_read_port(port, service["variable"]) for port in service["ports"]})
        jumps.append(f"        tcp dport {{ {', '.join(map(str, ports))} }} jump {name}")
        lines = []
        for version, kind, word in ((4, "ipv4_addr", "ip"), (6, "ipv6_addr", "ip6")):
            chosen = [str(network) for network in networks if network.version == version]
            if chosen:
                elements = ",\n            ".join(chosen)
                sets.append(
                    f"    set {name}{version} {{\n        type {kind}\n        flags interval\n"
                    f"        elements = {{\n            {elements}\n        }}\n    }}\n"
                )
                lines.append(f"        {word} saddr @{name}{version} accept")
        lines.append("        counter drop")
        chains.append(f"    chain {name} {{\n" + "\n".join(lines) + "\n    }\n")
    if not chains:
        return ""
    return (
        "#!/usr/sbin/nft -f\n"
        "# Written by provision. A table of its own: no rule of anybody else is touched.\n"
        f"table inet {TABLE} {{\n}}\n"
        f"delete table inet {TABLE}\n"
        f"table inet {TABLE} {{\n" + "".join(sets) + "".join(chains) + "    chain input {\n"
        "        type filter hook input priority -5; policy accept;\n"
        '        iifname "lo" accept\n'
        "        ct state established,related accept\n" + "\n".join(jumps) + "\n    }\n}\n"
    )


def find_lockout(connection: str, networks: Sequence[Any], ports: Sequence[Any]) -> str:
    """Say why an allow-list would cut the connection that carries the play; empty text where it would not.

    Args:
        connection: The value of ``SSH_CONNECTION``: address and port of the client, then of the server; empty where
            the node is not reached by SSH.
        networks: The allow-list.
        ports: The ports it is for.
    """
    allowed = read_networks(networks, "gpu_access_ssh_from")
    words = connection.split()
    if not allowed or not words:
        return ""
    if len(words) != 4:
        return f"SSH_CONNECTION on the node is {connection!r}, from which the controller's address cannot be read"
    client = ipaddress.ip_address(words[0].partition("%")[0])
    mapped = getattr(client, "ipv4_mapped", None)
    client = mapped or client
    if int(words[3]) not in {_read_port(port, "gpu_access_ssh_ports") for port in ports}:
        return f"this connection came in on port {words[3]}, which gpu_access_ssh_ports does not name"
    if not any(client.version == network.version and client in network for network in allowed):
        return f"this connection comes from {client}, which gpu_access_ssh_from does not allow"
    return ""


def list_problems(settings: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    """Return every contradiction between the settings of the role, and between them and the node.

    Args:
        settings: What the role's ``vars/main.yml`` gathers.
        host: What gpu_facts collected.
    """
    problems = []
    address = settings["address"]
    has_tls = settings["tls"] != "none"
    if has_tls and not settings["has_jupyter"]:
        problems.append(f"gpu_access_tls is {settings['tls']}, and Jupyter is off: set gpu_frameworks_jupyter_enabled")
    if address:
        try:
            is_loopback = ipaddress.ip_address(str(address)).is_loopback
        except ValueError:
            problems.append(f"gpu_access_jupyter_address: {address!r} is not an address")
        else:
            if not has_tls or not (is_loopback or settings["jupyter_from"]):
                problems.append(
                    f"gpu_access_jupyter_address is {address}: it needs gpu_access_tls, and beyond loopback an "
                    "allow-list in gpu_access_jupyter_from"
                )
    problems += [
        f"gpu_access_audit_rules: {rule!r} is not a rule: one line that starts with -w or -a"
        for rule in settings["audit_rules"]
        if not isinstance(rule, str) or not _AUDIT_RULE.fullmatch(rule)
    ]
    problems += [
        f"gpu_access_tls_names: {name!r} is neither DNS:name nor IP:address"
        for name in settings["tls_names"]
        if not isinstance(name, str) or not _TLS_NAME.fullmatch(name)
    ]
    problems += [
        f"gpu_access_tls_certificate and _key: {path!r} is not an absolute path"
        for path in settings["tls_paths"]
        if not isinstance(path, str) or not _PATH.fullmatch(path)
    ]
    if settings["has_sudo_log"] and "sudo" not in host["packages"]:
        problems.append("gpu_access_sudo_log is on, and sudo is not installed on this node")
    if settings["has_rules"]:
        if host["os"]["service_manager"] != "systemd":
            problems.append("an allow-list needs systemd, whose timer takes it back where it shuts the controller out")
        if not re.fullmatch(r"[1-9]\d{1,3}", str(settings["revert_seconds"])):
            problems.append(
                f"gpu_access_revert_seconds: {settings['revert_seconds']!r} is not a number of seconds from 10 to 9999"
            )
    return problems


def _read_port(port: Any, variable: str) -> int:
    if isinstance(port, bool) or not re.fullmatch(r"\d{1,5}", str(port)) or not 0 < int(port) < 65536:
        raise AnsibleFilterError(f"{variable}: {port!r} is not a port")
    return int(port)


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_access_lockout": find_lockout,
            "gpu_access_problems": list_problems,
            "gpu_access_rules": write_rules,
        }
