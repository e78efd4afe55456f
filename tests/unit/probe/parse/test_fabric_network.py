"""RDMA ports, network interfaces and firewalls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import machines
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse.fabric_network import (
    Firewall,
    Interface,
    RdmaPort,
    parse_firewall,
    parse_ibstat,
    parse_infiniband_sysfs,
    parse_interfaces,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SYSFS = """\
mlx5_0 1 state 4: ACTIVE
mlx5_0 1 phys_state 5: LinkUp
mlx5_0 1 rate 400 Gb/sec (4X NDR)
mlx5_0 1 link_layer InfiniBand
mlx5_0 1 link_downed 2
mlx5_0 1 fw_ver 28.36.1010
mlx5_1 1 state 1: DOWN
mlx5_1 1 phys_state 3: Disabled
mlx5_1 1 rate 2.5 Gb/sec (1X SDR)
mlx5_1 1 link_layer Ethernet
mlx5_1 1 link_downed N/A (no PMA)
mlx5_1 2 state 2: INIT
mlx5_1 2 later thing
"""
IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.36.1010
\tHardware version: 0
\tNode GUID: 0x0000000000000001
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 12
\t\tCapability mask: 0xa651e848
\t\tPort GUID: 0x0000000000000002
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.36.1011
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tLink layer: Ethernet
"""
INTERFACES = """\
lo mtu 65536
lo operstate unknown
lo kind loopback
eth0 mtu 9001
eth0 operstate up
eth0 speed 100000
eth0 kind physical
eth1 mtu 1500
eth1 operstate lowerlayerdown
eth1 speed -1
lo address 127.0.0.1/8
eth0 address 10.0.0.5/24
eth0 address fe80::1/64
veth12ab address fe80::2/64
"""
PORTS = "== local-ports\n32768\t60999\n"
NFT = """\
== nft
table inet filter {
\tset cluster {
\t\ttype ipv4_addr
\t\tflags interval
\t\telements = { 10.20.0.0/24, 10.30.0.0/24,
\t\t\t     10.40.0.7 }
\t}
\tchain input {
\t\ttype filter hook input priority filter; policy drop;
\t\tct state vmap { established : accept, related : accept, invalid : drop }
\t\tiifname "lo" accept
\t\tip saddr @cluster counter packets 10 bytes 600 accept
\t\tip saddr != 192.0.2.0/24 accept comment "no source of ours"
\t\ttcp dport { 22, 50000-51000 } accept
\t\tudp dport 53 accept
\t\tip saddr 203.0.113.0/24 drop
\t\tjump services
\t}
\tchain services {
\t\tip6 saddr fd00::/8 tcp dport 9400 accept
\t}
\tchain unused {
\t\tip saddr 198.51.100.0/24 accept
\t}
\tchain forward {
\t\ttype filter hook forward priority filter; policy drop;
\t}
}
"""
IPTABLES = """\
== iptables
-P INPUT ACCEPT
-P FORWARD DROP
-P OUTPUT ACCEPT
-N ours
-N unused
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -s 10.20.0.0/24 -m comment --comment "cluster -j DROP" -j ACCEPT
-A INPUT ! -s 192.0.2.0/24 -p tcp -m tcp --dport 80 -j ACCEPT
-A INPUT -p udp -m udp --dport 53 -j ACCEPT
-A INPUT -j ours
-A ours -p tcp -m tcp --dport 22 -j ACCEPT
-A ours -p tcp -m multiport --dports 8080,50000:51000 -j ACCEPT
-A ours -j REJECT --reject-with icmp-host-prohibited
-A unused -s 198.51.100.0/24 -j ACCEPT
"""
UFW = """\
== ufw
Status: active
Logging: on (low)
Default: deny (incoming), allow (outgoing), disabled (routed)
New profiles: skip

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW IN    Anywhere
Anywhere                   ALLOW IN    10.20.0.0/24               # cluster
10.0.0.5 9400/tcp          LIMIT IN    10.30.0.1
50000:51000/tcp            ALLOW IN    10.20.0.0/24
53/udp                     ALLOW IN    Anywhere
8080/tcp                   DENY IN     Anywhere                   # ALLOW IN later
25/tcp                     ALLOW OUT   Anywhere
"""
FIREWALLD = """\
== firewalld
public (default, active)
  target: default
  icmp-block-inversion: no
  interfaces: eth0
  sources:
  services: dhcpv6-client ssh
  ports: 9400/tcp 50000-51000/tcp 53/udp
  rich rules:
\trule family="ipv4" source address="10.50.0.0/24" accept
\trule family="ipv4" source address="10.60.0.0/24" port port="7000" protocol="tcp" accept
\trule family="ipv4" source address="203.0.113.0/24" drop

trusted (active)
  target: ACCEPT
  interfaces:
  sources: 10.20.0.0/24
  ports:

work
  target: default
  ports: 1234/tcp
"""
SAMPLES: dict[str, tuple[Callable[[str], object], str]] = {
    "sysfs": (parse_infiniband_sysfs, SYSFS),
    "ibstat": (parse_ibstat, IBSTAT),
    "interfaces": (parse_interfaces, INTERFACES),
    "nft": (parse_firewall, NFT + PORTS),
    "iptables": (parse_firewall, IPTABLES + PORTS),
    "ufw": (parse_firewall, UFW + PORTS),
    "firewalld": (parse_firewall, FIREWALLD + PORTS),
}


def test_ports_from_sysfs() -> None:
    assert parse_infiniband_sysfs(SYSFS) == (
        RdmaPort(
            device="mlx5_0",
            port=1,
            state="ACTIVE",
            physical="LinkUp",
            rate_gbit=400.0,
            layer="InfiniBand",
            downed=2,
            firmware="28.36.1010",
        ),
        RdmaPort(device="mlx5_1", port=1, state="DOWN", physical="Disabled", rate_gbit=2.5, layer="Ethernet"),
        RdmaPort(device="mlx5_1", port=2, state="INIT"),
    )
    assert parse_infiniband_sysfs("") == ()


def test_ports_from_ibstat() -> None:
    found = parse_ibstat(IBSTAT)

    assert [(row.device, row.port, row.state, row.rate_gbit, row.layer, row.firmware) for row in found] == [
        ("mlx5_0", 1, "ACTIVE", 400.0, "InfiniBand", "28.36.1010"),
        ("mlx5_1", 1, "INIT", 200.0, "Ethernet", "28.36.1011"),
    ]


def test_interfaces() -> None:
    assert parse_interfaces(INTERFACES) == (
        Interface(name="lo", mtu=65536, is_up=True, addresses=("127.0.0.1/8",), kind="loopback"),
        Interface(
            name="eth0",
            mtu=9001,
            is_up=True,
            speed_mbit=100000,
            addresses=("10.0.0.5/24", "fe80::1/64"),
            kind="physical",
        ),
        Interface(name="eth1", mtu=1500, is_up=False),
    )


def test_nft() -> None:
    assert parse_firewall(NFT + PORTS) == Firewall(
        tool="nft",
        drops_by_default=True,
        allowed_sources=("10.20.0.0/24", "10.30.0.0/24", "10.40.0.7", "fd00::/8"),
        allowed_ports=("22", "50000-51000", "9400"),
        local_ports=(32768, 60999),
    )


def test_iptables_drops_where_a_chain_it_always_enters_refuses() -> None:
    assert parse_firewall(IPTABLES + PORTS) == Firewall(
        tool="iptables",
        drops_by_default=True,
        allowed_sources=("10.20.0.0/24",),
        allowed_ports=("22", "8080", "50000-51000"),
        local_ports=(32768, 60999),
    )


def test_ufw() -> None:
    found = parse_firewall(UFW)

    assert (found.tool, found.drops_by_default, found.local_ports) == ("ufw", True, None)
    assert found.allowed_sources == ("10.20.0.0/24", "10.30.0.1")
    assert found.allowed_ports == ("22", "9400", "50000-51000")


def test_firewalld_counts_active_zones_only() -> None:
    found = parse_firewall(FIREWALLD)

    assert (found.tool, found.drops_by_default) == ("firewalld", True)
    assert found.allowed_sources == ("10.50.0.0/24", "10.60.0.0/24", "10.20.0.0/24")
    assert found.allowed_ports == ("9400", "50000-51000", "7000")


@pytest.mark.parametrize(
    ("rules", "drops"),
    [
        ("type filter hook input priority 0; policy accept;", False),
        ("type filter hook input priority filter - 10; policy drop;\naccept", False),
        ("type filter hook input priority filter; policy accept;\ncounter packets 1 bytes 2 drop", True),
        ('type filter hook input priority filter; policy accept;\nlog prefix "x" drop', True),
        ("type filter hook input priority filter; policy accept;\nreject with icmpx admin-prohibited", True),
        ("type filter hook input priority filter; policy accept;\nip saddr 10.0.0.0/8 drop", False),
        ("type filter hook input priority filter; policy drop;\njump input", True),
    ],
    ids=["accept", "accept-all", "counted-drop", "logged-drop", "reject", "some", "circle"],
)
def test_what_nft_does_with_the_rest(rules: str, drops: bool) -> None:
    found = parse_firewall(f"== nft\ntable inet filter {{\nchain input {{\n{rules}\n}}\n}}\n")

    assert (found.tool, found.drops_by_default) == ("nft", drops)


@pytest.mark.parametrize(
    ("text", "tool", "drops"),
    [
        ("== none\n", "none", False),
        ("== nft\n", "none", False),
        (
            "== nft\ntable ip nat {\nchain x {\ntype nat hook prerouting priority 0; policy accept;\n}\n}\n",
            "none",
            False,
        ),
        ("== iptables\n-P INPUT ACCEPT\n-P FORWARD DROP\n", "none", False),
        ("== ufw\nStatus: inactive\n", "none", False),
        ("== firewalld\nnot running\n", "none", False),
        ("== iptables\n-P INPUT ACCEPT\n== ip6tables\n-P INPUT DROP\n", "iptables", False),
        (f"{NFT}== iptables\n-P INPUT ACCEPT\n{UFW}", "ufw", True),
    ],
    ids=["none", "nft-empty", "nft-nat", "iptables-open", "ufw-off", "firewalld-off", "only-ipv6", "front-end-first"],
)
def test_what_is_switched_off_filters_nothing(text: str, tool: str, drops: bool) -> None:
    found = parse_firewall(text)

    assert (found.tool, found.drops_by_default) == (tool, drops)


def test_a_default_that_is_not_told_is_unknown() -> None:
    assert parse_firewall("== ufw\nStatus: active\n").drops_by_default is None


REFUSED = [
    (parse_infiniband_sysfs, "mlx5_0 1\n", "another form"),
    (parse_infiniband_sysfs, "mlx5_0 1 rate 400 Gb/sec\n", "tells no state"),
    (parse_infiniband_sysfs, "mlx5_0 1 state 9: PERHAPS\n", "tells no state"),
    (parse_infiniband_sysfs, "mlx5_0 one state 4: ACTIVE\n", "not a whole number"),
    (parse_infiniband_sysfs, "mlx5_0 1 state 4: ACTIVE\nmlx5_0 1 rate fast\n", "not a number"),
    (parse_ibstat, "", "names no adapter"),
    (parse_ibstat, "ibpanic: [1] main: stat of IB device failed\n", "names no adapter"),
    (parse_ibstat, "\n".join(IBSTAT.splitlines()[:18]), "no port of mlx5_1"),
    (parse_ibstat, "\n".join(IBSTAT.splitlines()[:7]), "tells no state"),
    (parse_interfaces, "", "lists none"),
    (parse_interfaces, "veth0 address fe80::2/64\n", "lists none"),
    (parse_interfaces, "eth0\n", "another form"),
    (parse_interfaces, "eth0 mtu 1500\n", "no state of eth0"),
    (parse_interfaces, "eth0 mtu 1500\neth0 operstate sideways\n", "no state of eth0"),
    (parse_interfaces, "eth0 operstate up\n", "no MTU"),
    (parse_interfaces, "eth0 mtu big\neth0 operstate up\n", "not a whole number"),
    (parse_firewall, "", "could not be read"),
    (parse_firewall, PORTS, "could not be read"),
    (parse_firewall, "-P INPUT ACCEPT\n", "something else than a heading"),
    (parse_firewall, "== pf\n", "not known"),
    (parse_firewall, "== none\n== local-ports\n32768\n", "two ends"),
    (parse_firewall, "== none\n== local-ports\n9 1\n", "is none"),
    (parse_firewall, "== iptables\n", "no policy"),
    (parse_firewall, "== iptables\n-P OUTPUT ACCEPT\n", "no policy"),
    (parse_firewall, "== iptables\niptables: Permission denied\n", "another form"),
    (parse_firewall, "== nft\nOperation not permitted\n", "another form"),
    (parse_firewall, NFT.rpartition("chain unused")[0], "middle of a block"),
    (parse_firewall, "== nft\ntable inet filter {\n}\n}\n", "not opened"),
    (parse_firewall, "== ufw\nERROR: You need to be root\n", "whether it is active"),
    (parse_firewall, "== firewalld\n", "lists no zone"),
    (parse_firewall, "== firewalld\nAuthorization failed.\n", "another form"),
]


@pytest.mark.parametrize(
    ("parse", "text", "reason"), REFUSED, ids=[f"{case[0].__name__}-{number}" for number, case in enumerate(REFUSED)]
)
def test_other_text_is_refused(parse: Callable[[str], object], text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(text)


@pytest.mark.parametrize("sample", SAMPLES)
@given(data=st.data())
def test_damaged_text_ends_in_a_value_or_a_refusal(sample: str, data: st.DataObject) -> None:
    parse, text = SAMPLES[sample]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    junk = data.draw(st.text(alphabet=st.characters() | st.sampled_from('\x1b\0\n\t {}=:,;-"'), max_size=20))
    try:
        parse(text[:start] + junk + text[end:])
    except Unreadable as error:
        error.reason.encode()


@pytest.mark.parametrize("name", machines.MACHINES)
def test_stand_in_machines(name: str) -> None:
    host = machines.snapshot(machines.MACHINES[name]())
    expected = machines.EXPECTED[name]

    interfaces = {interface.name: interface for interface in host.interfaces}
    assert (interfaces["eth0"].mtu, interfaces["eth0"].is_up, interfaces["lo"].speed_mbit) == (9000, True, None)
    assert {(port.state, port.rate_gbit) for port in host.rdma_ports if not port.is_switch_management} == (
        {("ACTIVE", float(expected.rdma_gbit))} if expected.rdma_gbit else set()
    )
    assert len([port for port in host.rdma_ports if port.is_switch_management]) == (4 if name == "hgx_b200" else 0)
    if host.has("firewall"):
        assert host.firewall.drops_by_default is True
        assert host.firewall.allowed_sources == ("10.20.0.0/24",)
        assert host.firewall.local_ports == (32768, 60999)
