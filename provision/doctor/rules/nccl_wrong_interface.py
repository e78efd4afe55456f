"""NCCL talks over an interface that does not lead to the other hosts."""

from __future__ import annotations

from provision.doctor.case import BRIDGE, Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.probe.parse.fabric_network import Interface

SYMPTOMS = (
    r"NCCL INFO (?:NET/Socket|Bootstrap)\s?: Using (?:\[[0-9]{1,2}\])?"
    r"((?:docker|podman|br-|veth|virbr|lxcbr|lxdbr|cni|flannel|cali|weave|tailscale|wg|tun)[a-z0-9_.-]{0,20}|lo):",
    r"no socket interface found|No usable listening interface found|NET/Socket\s?: no interface found",
    r"NET/IB\s?: No IP interface found|no device found (?:matching|after excluding) .{1,60}verify NCCL",
    r"\bGloo connectFullMesh failed",
    r"NCCL INFO NET\s?: Using interface lo:",
    rf"\bconnect(?:ing|\(\))? to (?:address |any network address of )?\(?{BRIDGE}",
    r"connecting to address .{0,40}with family [0-9]{1,6} is neither AF_INET",
    r"Socket creation failed : Address family not supported by protocol",
    r"Unable to find (?:interface|address) for: ?\[?[\w.^-]{1,40}",
    r"Unable to resolve hostname to a \(?local\)? address",
    r"connect(?:ing|\(\))? to \[?127\.0\.[01]\.1\]?<[0-9]{1,5}>.{0,40}(?:failed|refused)",
)

_AMONG = r"\[[0-9]{1,2}\](?:docker[0-9]|br-[0-9a-f]{12}|veth[0-9a-f]{7}|virbr[0-9]|lxcbr[0-9]|cni0|flannel\.[0-9]):"
_FAILED = r"ncclSystemError|unhandled system error"


def examine(case: Case) -> Sign | None:
    """Look at the interface NCCL chose, and whether the one the environment names exists and is up."""
    quote = case.find(*SYMPTOMS) or (case.find(_AMONG) if case.find(_FAILED) else None)
    interfaces = case.look(lambda host: host.interfaces) or ()
    wanted = (case.look(lambda host: host.environment) or {}).get("NCCL_SOCKET_IFNAME", "").strip()
    able = [face for face in interfaces if face.is_up and face.kind in ("physical", "bond", "infiniband", "vlan")]
    names = ", ".join(face.name for face in able if face.addresses)
    expected = "an interface with an address that the other hosts reach" + (f", here one of {names}" if names else "")
    fix = (f"Name the interface: `export NCCL_SOCKET_IFNAME={names.split(', ')[0]}`.",) if names else ()
    if wanted and interfaces and not wanted.startswith("^"):
        chosen = _choose(wanted, interfaces)
        if not chosen or not any(face.is_up for face in chosen):
            what = f"is down: {chosen[0].name}" if chosen else "is none of this host's interfaces"
            seen = (f"NCCL_SOCKET_IFNAME is `{wanted}` and {what}", *quoted(quote))
            return Sign(confidence="high", seen=seen, expected=expected, fix=fix)
    unseen = () if interfaces else ("which interface leads to the other hosts: `ip -br addr; ip route get ADDRESS`",)
    return hint(quote, expected=expected, fix=fix, unseen=unseen)


def _choose(wanted: str, interfaces: tuple[Interface, ...]) -> list[Interface]:
    """Return the interfaces a value of NCCL_SOCKET_IFNAME takes.

    Source: NCCL user guide, environment variables: prefixes separated by commas, ``=`` in front makes names exact.
    """
    is_exact = wanted.startswith("=")
    names = [name.strip() for name in wanted.lstrip("=").split(",") if name.strip()]
    return [
        face
        for face in interfaces
        if any(face.name == name if is_exact else face.name.startswith(name) for name in names)
    ]
