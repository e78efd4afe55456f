"""The interfaces of the cluster have one MTU on all hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["compare"]

_KINDS = ("physical", "bond", "infiniband")


def compare(
    hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix
) -> Mapping[str, Outcome]:
    """Compare each interface with the plan, and with what most hosts have under the same name."""
    del matrix
    outcomes: dict[str, Outcome] = {}
    seen: dict[str, dict[str, int]] = {}
    for name, host in hosts.items():
        try:
            seen[name] = _mtus(host, expected[name])
        except Unreadable as error:
            outcomes[name] = unknown(error.reason)
    counts = Counter(pair for mtus in seen.values() for pair in mtus.items())
    for name, mtus in seen.items():
        outcomes[name] = _judge(mtus, expected[name], counts)
    return outcomes


def _mtus(host: Snapshot, expected: Expectation) -> dict[str, int]:
    if expected.interfaces:
        return {one.name: one.mtu for one in host.interfaces if one.name in expected.interfaces}
    return {one.name: one.mtu for one in host.interfaces if one.is_up and one.kind in _KINDS}


def _judge(mtus: Mapping[str, int], expected: Expectation, counts: Counter[tuple[str, int]]) -> Outcome:
    absent = [name for name in expected.interfaces if name not in mtus]
    if absent:
        return failed(f"there is no interface {', '.join(absent)}", "the planned interfaces", subjects=absent)
    if not mtus:
        return unknown("no interface of the cluster is up")
    usual = {
        name: expected.mtu
        or max((pair for pair in counts if pair[0] == name), key=lambda pair: (counts[pair], pair[1]))[1]
        for name in mtus
    }
    odd = {name: mtu for name, mtu in mtus.items() if mtu != usual[name]}
    if odd:
        reason = "as planned" if expected.mtu else "as most hosts have"
        return failed(
            "; ".join(f"{name} has {mtu}" for name, mtu in odd.items()),
            "; ".join(f"{name} {usual[name]}, {reason}" for name in odd),
            subjects=odd,
        )
    return passed(", ".join(f"{name} has {mtu}" for name, mtu in sorted(mtus.items())))
