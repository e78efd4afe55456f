"""Two ends of a link, or something between them, disagree on the size of packets."""

from __future__ import annotations

from collections.abc import Mapping

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.probe.parse.fabric_network import Interface

SYMPTOMS = (
    r"message too long,? mtu[=:]? ?[0-9]{3,5}",
    r"Frag needed and DF set \(mtu = [0-9]{3,5}\)",
    r"IBV_WC_LOC_LEN_ERR",
    r"local length error",
)

_KINDS = ("physical", "bond", "infiniband", "vlan")


def examine(case: Case) -> Sign | None:
    """Compare interfaces of one name over the hosts that are given."""
    quote = case.find(*SYMPTOMS)
    hosts = case.compare(lambda host: host.interfaces)
    expected = "one MTU on all hosts and switches between them"
    for name, sizes in _sizes(hosts).items():
        if len(set(sizes.values())) > 1:
            seen = f"{name} has MTU " + ", ".join(f"{size} on {host}" for host, size in sizes.items())
            return Sign(
                confidence="high" if quote else "medium",
                seen=(seen, *quoted(quote)),
                expected=expected,
                subjects=tuple(sizes),
                unseen=() if quote else ("whether these interfaces are on one network",),
            )
    unseen = ("whether large packets pass: `ping -M do -s 8972 ADDRESS`",)
    return hint(quote, expected=expected, unseen=unseen)


def _sizes(hosts: Mapping[str, tuple[Interface, ...]]) -> dict[str, dict[str, int]]:
    """Return interface → host → MTU for interfaces that are up, have an address and lead outside."""
    sizes: dict[str, dict[str, int]] = {}
    for host, interfaces in hosts.items():
        for face in interfaces:
            if face.is_up and face.addresses and face.kind in _KINDS:
                sizes.setdefault(face.name, {})[host] = face.mtu
    return {name: found for name, found in sorted(sizes.items()) if len(found) > 1}
