"""A machine as tuning sees it: which conditions hold, and the values that rows put in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from provision.generate.tuning import Situation
from provision.probe.output import Unreadable

if TYPE_CHECKING:
    from provision.probe.snapshot import Snapshot

FAST_MBIT = 100_000
"""From which speed of an interface on, in Mbit/s, settings for fast networks help."""
_DEVICE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,14}")
_BRIDGE = re.compile(r"[a-z][a-z0-9_-]{0,14}")
_CPUS = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
# Where NCCL itself chooses how many sockets it opens.
_OWN_DEFAULTS = ("Amazon", "Google")
_LEFT_OUT = ("docker", "lo")
_CPUS_MAX = 65_536


def situation_of(host: Snapshot, libraries: Mapping[str, str], asked: frozenset[str]) -> Situation:
    """Return what is known of a machine and a job. What could not be read does not hold, and neither does its opposite.

    Args:
        host: What a probe brought.
        libraries: Library → version, from a lock; what the machine says of others is added.
        asked: Conditions that a person stated.
    """
    facts = set(asked)
    values: dict[str, str] = {}
    for look in (_place, _limits, _rdma, _interfaces, _processors):
        try:
            look(host, facts, values)
        except Unreadable:
            continue
    return Situation(libraries={**_installed(host), **libraries}, facts=frozenset(facts), values=values)


def _place(host: Snapshot, facts: set[str], values: dict[str, str]) -> None:
    del values
    machine = host.virtualization
    facts.add("container" if machine.is_container else "node")
    if machine.vendor is not None and not machine.vendor.startswith(_OWN_DEFAULTS):
        facts.add("no-vendor-default")


def _limits(host: Snapshot, facts: set[str], values: dict[str, str]) -> None:
    del values
    if host.limits.get("memlock_kib") is not None:
        facts.add("limited-memlock")


def _rdma(host: Snapshot, facts: set[str], values: dict[str, str]) -> None:
    ports = host.rdma_ports
    active = [port for port in ports if port.state == "ACTIVE" and not port.is_switch_management]
    facts.add("rdma" if active else "no-rdma")
    names = sorted({port.device for port in active if _DEVICE.fullmatch(port.device)})
    if active and len(active) < len(ports) and names:
        facts.add("idle-rdma")
        values["rdma_devices"] = ",".join(names)


def _interfaces(host: Snapshot, facts: set[str], values: dict[str, str]) -> None:
    up = [item for item in host.interfaces if item.is_up]
    fast = sorted(item.name for item in up if (item.speed_mbit or 0) >= FAST_MBIT)
    if fast:
        facts.add("100g")
        values["fast_interfaces"] = ", ".join(name for name in fast if _INTERFACE.fullmatch(name))
    bridges = sorted(
        item.name
        for item in up
        if item.kind == "bridge" and not item.name.startswith(_LEFT_OUT) and _BRIDGE.fullmatch(item.name)
    )
    if bridges:
        facts.add("bridge")
        values["bridges"] = ",".join(bridges)


def _processors(host: Snapshot, facts: set[str], values: dict[str, str]) -> None:
    topology = host.topology
    found = {
        name: row.get("CPU Affinity", "")
        for name, row in topology.affinity.items()
        if name.startswith("GPU") and _CPUS.fullmatch(row.get("CPU Affinity", ""))
    }
    if not found:
        return
    facts.add("cpus")
    if len(set(found.values())) > 1:
        facts.add("affinity")
    processors: set[int] = set()
    for text in found.values():
        processors |= _numbers(text)
    values["affinity"] = "; ".join(f"{name} on {text}" for name, text in sorted(found.items(), key=_by_number))
    values["cpus_per_gpu"] = str(max(1, len(processors) // len(found)))


def _by_number(item: tuple[str, str]) -> tuple[int, str]:
    digits = item[0].removeprefix("GPU")
    return (int(digits) if digits.isdecimal() else 0, item[0])


def _numbers(text: str) -> set[int]:
    """Return the processors of a list such as ``0-47,96-143``."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), min(int(last or first), int(first) + _CPUS_MAX) + 1))
    return found


def _installed(host: Snapshot) -> dict[str, str]:
    """Return the versions that the machine's own Python reports."""
    reads: dict[str, Callable[[], str | None]] = {
        "torch": lambda: host.torch.version,
        "tensorflow": lambda: host.tensorflow.version,
        "jax": lambda: host.jax.version,
        "nccl": lambda: host.torch.nccl,
    }
    found: dict[str, str] = {}
    for name, read in reads.items():
        try:
            version = read()
        except Unreadable:
            continue
        if version and re.fullmatch(r"[0-9][A-Za-z0-9.+]{0,40}", version):
            found[name] = version.partition("+")[0]
    return found
