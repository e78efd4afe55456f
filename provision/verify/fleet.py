"""What many targets have in common: the same failure on many hosts, and the one host that differs from the rest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from provision.probe.output import read_or
from provision.probe.snapshot import Snapshot
from provision.records import record
from provision.signals.signal import UNKNOWN
from provision.verify.engine import SEVERITIES, Result, Verdict


@record
class Group:
    """One failure on several targets. ``seen`` is what the first of them showed."""

    check: str
    status: str
    severity: str
    title: str
    seen: str
    expected: str
    remedy: str
    runbook: str
    targets: tuple[str, ...]


@record
class Difference:
    """A trait in which targets differ. ``targets`` maps each other value to who has it; ``""`` is a value not known."""

    trait: str
    majority: str
    majority_count: int
    targets: Mapping[str, tuple[str, ...]]


def group_failures(verdict: Verdict) -> tuple[Group, ...]:
    """Return the failures, equal ones together: worst first, then the widest spread, then by id.

    Two are equal when check, status and text agree apart from what names the target or a device or counts something:
    indices, addresses and numbers.
    """
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in verdict.failures:
        groups.setdefault((result.check, result.outcome.status, _shape(result)), []).append(result)
    found = [
        Group(
            check=first.check,
            status=first.outcome.status,
            severity=first.severity,
            title=first.title,
            seen=first.outcome.seen,
            expected=first.outcome.expected,
            remedy=first.remedy,
            runbook=first.runbook,
            targets=tuple(dict.fromkeys(result.target for result in rows)),
        )
        for rows in groups.values()
        for first in rows[:1]
    ]
    return tuple(
        sorted(
            found,
            key=lambda group: (
                SEVERITIES.index(group.severity),
                group.status == UNKNOWN,
                -len(group.targets),
                group.check,
                group.seen,
            ),
        )
    )


_PCI_ADDRESS = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")
_IDENTITY = re.compile(r"\bGPU-[0-9a-f-]{8,}|\b(?:GPU|link|port|NIC) ?\d+|\bmlx\d+_\d+(?:/\d+)?")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


def _shape(result: Result) -> str:
    """Return a text without what differs between hosts that fail alike; versions stay, for they tell failures apart."""
    host = result.target.rpartition("//")[2].rpartition("@")[2]
    seen = result.outcome.seen
    if host:
        seen = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "#", seen)
    return _NUMBER.sub("#", _IDENTITY.sub("#", _PCI_ADDRESS.sub("#", seen)))


def _gpus(host: Snapshot) -> str:
    counts = Counter(gpu.name or "a GPU without a name" for gpu in host.smi.gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


def _one_for_all(field: str) -> Callable[[Snapshot], str]:
    def read(host: Snapshot) -> str:
        return ", ".join(sorted({_word(getattr(gpu, field)) for gpu in host.smi.gpus}))

    return read


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not told" if value is None else str(value)


def _packages(pattern: str) -> Callable[[Snapshot], str]:
    def read(host: Snapshot) -> str:
        named = [row for row in host.packages if re.fullmatch(pattern, row.name) and row.state == "installed"]
        return ", ".join(sorted(f"{row.name} {row.version}" for row in named)) or "none"

    return read


def _distribution(name: str) -> Callable[[Snapshot], str]:
    return lambda host: host.python.packages.get(name, "none")


TRAITS: dict[str, Callable[[Snapshot], str]] = {
    "system": lambda host: host.os_release.name or f"{host.os_release.id} {host.os_release.version or ''}".strip(),
    "kernel": lambda host: host.uname.release,
    "kernel parameters": lambda host: " ".join(
        f"{key}={value}" if value else key
        for key, value in sorted(host.command_line.items())
        if key not in ("BOOT_IMAGE", "root", "initrd", "resume")
    ),
    "driver": lambda host: host.find_driver_version(),
    "kernel modules": lambda host: {True: "open", False: "proprietary", None: "not told"}[host.driver.is_open],
    "GPUs": _gpus,
    "VBIOS": _one_for_all("vbios"),
    "persistence": _one_for_all("persistence"),
    "ECC": _one_for_all("ecc_current"),
    "MIG": _one_for_all("mig_current"),
    "compute mode": _one_for_all("compute_mode"),
    "power limit": _one_for_all("power_limit_w"),
    "fabric manager": lambda host: host.fabric_manager.version or "none",
    "container toolkit": lambda host: host.toolkit.version or "none",
    "docker packages": _packages(r"docker(-ce|\.io)?|containerd(\.io)?"),
    "CUDA compiler": lambda host: host.nvcc.version or host.nvcc.release,
    "Python": lambda host: host.python.version or "not told",
    "torch": _distribution("torch"),
    "tensorflow": _distribution("tensorflow"),
    "jax": _distribution("jax"),
    "NCCL": lambda host: (
        ", ".join(
            sorted(
                f"{name} {version}" for name, version in host.python.packages.items() if name.startswith("nvidia-nccl")
            )
        )
        or "none"
    ),
    "RDMA": lambda host: (
        ", ".join(
            f"{count} x {rate}"
            for rate, count in sorted(
                Counter(
                    f"{port.rate_gbit:g} Gb/s {port.layer}" if port.rate_gbit else "no rate" for port in host.rdma_ports
                ).items()
            )
        )
        or "none"
    ),
    "RDMA firmware": lambda host: (
        ", ".join(sorted({port.firmware for port in host.rdma_ports if port.firmware})) or "none"
    ),
}
"""What hosts of one fleet should agree in → how it reads on one host."""


def read_traits(host: Snapshot) -> dict[str, str]:
    """Return every trait of a host; one that cannot be read is empty."""
    return {name: _read(read, host) for name, read in TRAITS.items()}


def _read(read: Callable[[Snapshot], str], host: Snapshot) -> str:
    return read_or(lambda: read(host), "")


def find_differences(traits: Mapping[str, Mapping[str, str]]) -> tuple[Difference, ...]:
    """Compare hosts trait by trait with what most of them have.

    Args:
        traits: Target → what :func:`read_traits` gave.

    Returns:
        The traits in which not all agree, in the order of :data:`TRAITS`. Without a majority of known values the most
        frequent one stands in, on a tie the one that sorts first.
    """
    found = []
    for trait in TRAITS:
        values = {target: row.get(trait, "") for target, row in traits.items()}
        counts = Counter(value for value in values.values() if value)
        # What one host alone tells is no difference.
        if sum(counts.values()) < 2 or len(set(values.values())) < 2:
            continue
        majority, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
        others: dict[str, list[str]] = {}
        for target, value in values.items():
            if value != majority:
                others.setdefault(value, []).append(target)
        found.append(
            Difference(
                trait=trait,
                majority=majority,
                majority_count=count,
                targets={value: tuple(names) for value, names in sorted(others.items())},
            )
        )
    return tuple(found)
