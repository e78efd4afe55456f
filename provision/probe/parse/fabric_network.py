"""InfiniBand and RoCE ports, from sysfs and from ``ibstat``; network interfaces; firewalls."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.probe.output import Unreadable
from provision.probe.parse.firewall_rules import (
    FirewallRules,
    read_firewalld,
    read_iptables,
    read_nft,
    read_ufw,
)
from provision.probe.parse.recorded import headed, kept, read_integer, read_lines, read_number
from provision.records import record

_DEVICE = re.compile(r"[A-Za-z0-9._:@-]{1,64}")
_STATES = {
    "ACTIVE": "ACTIVE",
    "INIT": "INIT",
    "INITIALIZING": "INIT",
    "ARMED": "ARMED",
    "DOWN": "DOWN",
    "NOP": "DOWN",
    "ACTIVE_DEFER": "ACTIVE_DEFER",
}
_OPERATIONAL_STATES = ("up", "down", "unknown", "dormant", "lowerlayerdown", "notpresent", "testing")
_PORT_MAX = 65_535
_IBSTAT_KEYS = {"State": "state", "Physical state": "phys_state", "Rate": "rate", "Link layer": "link_layer"}
_FIREWALLS = {
    "firewalld": read_firewalld,
    "ufw": read_ufw,
    "nft": read_nft,
    "iptables": read_iptables,
    "ip6tables": read_iptables,
}
"""Tool → what reads its listing, those first that people set rules with."""


@record
class RdmaPort:
    """A port of an RDMA device.

    ``state`` is ``ACTIVE``, ``INIT``, ``ARMED`` or ``DOWN``; ``physical`` ``LinkUp``, ``Polling``, ``Disabled``;
    ``layer`` ``InfiniBand`` or ``Ethernet``. ``downed`` counts link losses since the counters began.
    ``is_switch_management`` tells a port that manages the NVSwitches of a board and leads to no network; ``None`` where
    the adapter's product data could not be read.
    """

    device: str
    port: int
    state: str
    physical: str | None = None
    rate_gbit: float | None = None
    layer: str | None = None
    downed: int | None = None
    firmware: str | None = None
    is_switch_management: bool | None = None


@record
class Interface:
    """A network interface; ``speed_mbit`` is ``None`` where the kernel does not know it."""

    name: str
    mtu: int
    is_up: bool
    speed_mbit: int | None = None
    addresses: tuple[str, ...] = ()
    kind: str | None = None


@record
class Firewall:
    """What filters incoming packets.

    Attributes:
        tool: ``nft``, ``iptables``, ``firewalld``, ``ufw`` or ``none``; of several the one people set rules with.
        drops_by_default: Whether a packet that no rule names is dropped; ``None`` when the rules do not tell.
        allowed_sources: Addresses and networks that any rule accepts from.
        allowed_ports: TCP ports and ranges that any rule accepts (``22``, ``50000-51000``).
        local_ports: ``net.ipv4.ip_local_port_range``.
    """

    tool: str
    drops_by_default: bool | None = None
    allowed_sources: tuple[str, ...] = ()
    allowed_ports: tuple[str, ...] = ()
    local_ports: tuple[int, int] | None = None


def parse_infiniband_sysfs(text: str) -> tuple[RdmaPort, ...]:
    """Read the ``infiniband`` probe: one line ``device port key value`` a sysfs file; empty means no RDMA device.

    Raises:
        Unreadable: A line has another form, or a port tells no state.
    """
    ports: dict[tuple[str, int], dict[str, str]] = {}
    for line in read_lines(text, "infiniband"):
        if not line:
            continue
        words = line.split(" ", 3)
        if len(words) < 3 or not _DEVICE.fullmatch(words[0]):
            raise Unreadable(f"infiniband has a line of another form: `{kept(line, 80)}`")
        port = ports.setdefault((words[0], read_integer(words[1], "infiniband: a port")), {})
        port[words[2]] = kept(words[3]) if len(words) == 4 else ""
    return tuple(_rdma_port(device, number, values) for (device, number), values in ports.items())


def parse_ibstat(text: str) -> tuple[RdmaPort, ...]:
    """Read ``ibstat``.

    Raises:
        Unreadable: It names no adapter, an adapter has no port, or a port tells no state.
    """
    device = firmware = ""
    devices: list[str] = []
    ports: list[tuple[str, int, dict[str, str]]] = []
    for line in read_lines(text, "ibstat"):
        label, colon, value = line.strip().partition(":")
        if line.startswith("CA '") and line.endswith("'"):
            device, firmware = kept(line[4:-1]), ""
            devices.append(device)
        elif not colon or not device:
            continue
        elif label.startswith("Port ") and not value.strip():
            ports.append((device, read_integer(label[5:].strip(), "ibstat: a port"), {"fw_ver": firmware}))
        elif label == "Firmware version":
            firmware = kept(value)
        elif ports and ports[-1][0] == device and label in _IBSTAT_KEYS:
            ports[-1][2][_IBSTAT_KEYS[label]] = kept(value)
    silent = [name for name in devices if name not in {port[0] for port in ports}]
    if not devices or silent:
        raise Unreadable(f"ibstat tells of no port of {silent[0]}" if silent else "ibstat names no adapter")
    return tuple(_rdma_port(name, number, values) for name, number, values in ports)


def parse_interfaces(text: str) -> tuple[Interface, ...]:
    """Read the ``interfaces`` probe: lines ``name key value``, keys mtu, operstate, speed, address, kind.

    An interface whose state the kernel does not follow (the loopback, a tunnel) counts as up: such a one is ``down``
    only when it was taken down. One of which only addresses are told came while the others were looked at, and is left
    out.

    Raises:
        Unreadable: A line has another form, an interface lacks its MTU or state, or there is none.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for line in read_lines(text, "interfaces"):
        words = line.split()
        if not words:
            continue
        if len(words) < 2 or len(words[0]) > 64:
            raise Unreadable(f"interfaces has a line of another form: `{kept(line, 80)}`")
        found.setdefault(words[0], {}).setdefault(words[1], []).append(kept(" ".join(words[2:])))
    settled = {name: values for name, values in found.items() if set(values) != {"address"}}
    if not settled:
        raise Unreadable("interfaces lists none")
    return tuple(_interface(kept(name), values) for name, values in settled.items())


def parse_firewall(text: str) -> Firewall:
    """Read the ``firewall`` probe: ``== TOOL`` headings, each with that tool's own listing, then the port range.

    Front ends (ufw, firewalld) write rules that the kernel's own tools list again; all listings count, and a tool
    that is switched off counts for nothing.

    Raises:
        Unreadable: No heading stands in it, or a listing is not that tool's.
    """
    parts = headed(read_lines(text, "firewall"), "firewall")
    local_ports: tuple[int, int] | None = None
    rules: dict[str, FirewallRules] = {}
    for tool, lines in parts:
        if tool == "local-ports":
            local_ports = _local_ports(lines)
        elif tool in _FIREWALLS:
            found = _FIREWALLS[tool](lines)
            if found is not None:
                rules[tool] = found
        elif tool != "none":
            raise Unreadable(f"firewall names a tool that is not known: `{kept(tool, 40)}`")
    if all(tool == "local-ports" for tool, _ in parts):
        raise Unreadable("the firewall's state could not be read")
    ranked = [tool for tool in _FIREWALLS if tool in rules]
    return Firewall(
        tool=ranked[0].replace("ip6", "ip") if ranked else "none",
        drops_by_default=_drops_by_default(rules),
        allowed_sources=tuple(dict.fromkeys(source for tool in ranked for source in rules[tool].sources)),
        allowed_ports=tuple(dict.fromkeys(port for tool in ranked for port in rules[tool].ports)),
        local_ports=local_ports,
    )


def _rdma_port(device: str, number: int, values: Mapping[str, str]) -> RdmaPort:
    # sysfs writes the number of a state before its name.
    state = _STATES.get(values.get("state", "").rpartition(":")[2].strip().upper())
    if state is None:
        raise Unreadable(f"port {number} of {device} tells no state")
    rate, downed = values.get("rate", "").partition(" ")[0], values.get("link_downed", "")
    layer = values.get("link_layer", "")
    return RdmaPort(
        device=device,
        port=number,
        state=state,
        physical=values.get("phys_state", "").rpartition(":")[2].strip() or None,
        rate_gbit=read_number(rate, f"the rate of {device}") if rate else None,
        layer=layer if layer not in ("", "Unknown", "Unspecified") else None,
        # A device without a performance management agent says `N/A (no PMA)`.
        downed=read_integer(downed, f"the link losses of {device}") if downed[:3] not in ("", "N/A") else None,
        firmware=values.get("fw_ver") or None,
        is_switch_management={"switch-management": True, "network": False}.get(values.get("role", "")),
    )


def _interface(name: str, values: Mapping[str, list[str]]) -> Interface:
    state = values.get("operstate", [""])[-1]
    if "mtu" not in values or state not in _OPERATIONAL_STATES:
        raise Unreadable(f"interfaces tells no MTU or no state of {name}")
    speed = read_integer(values["speed"][-1], f"the speed of {name}") if "speed" in values else -1
    return Interface(
        name=name,
        mtu=read_integer(values["mtu"][-1], f"the MTU of {name}"),
        is_up=state in ("up", "unknown"),
        speed_mbit=speed if speed > 0 else None,
        addresses=tuple(values.get("address", ())),
        kind=values.get("kind", [None])[-1],
    )


def _local_ports(lines: list[str]) -> tuple[int, int] | None:
    words = [word for line in lines for word in line.split()]
    if not words:
        return None
    if len(words) != 2:
        raise Unreadable("the range of local ports has not two ends")
    first, last = (read_integer(word, "the range of local ports") for word in words)
    if not 0 <= first <= last <= _PORT_MAX:
        raise Unreadable(f"the range of local ports is none: {first} to {last}")
    return first, last


def _drops_by_default(rules: Mapping[str, FirewallRules]) -> bool | None:
    """Say that packets are dropped when one tool does so: each of them sees every packet.

    Most talk of NCCL and the frameworks goes over IPv4, so the rules of IPv6 do not decide.
    """
    answers = [found.drops for tool, found in rules.items() if tool != "ip6tables"]
    if True in answers:
        return True
    return None if None in answers else False
