"""The verdict on targets that are all at hand; the program itself judges each as it answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from provision.matrix.load import Matrix
from provision.matrix.model import Check
from provision.probe.snapshot import Snapshot
from provision.records import NOTHING
from provision.signals.expectation import Expectation
from provision.verify.engine import Verdict, compare_hosts, conclude, unreached, verify_one

__all__ = ["verify_hosts"]


def verify_hosts(
    hosts: Mapping[str, Snapshot],
    expected: Mapping[str, Expectation],
    matrix: Matrix,
    checks: Collection[Check],
    *,
    unreachable: Mapping[str, str] = NOTHING,
    fail_on: str = "medium",
) -> Verdict:
    """Ask all checks about all targets, in the order given.

    Args:
        hosts: Target → what was collected.
        expected: Target → what was planned.
        matrix: The facts.
        checks: What is asked.
        unreachable: Target → why nothing was collected.
        fail_on: The severity from which on a verdict fails.
    """
    results = [result for name, host in hosts.items() for result in verify_one(host, expected[name], matrix, checks)]
    results += compare_hosts(hosts, expected, matrix, checks)
    results += [unreached(name, why) for name, why in unreachable.items()]
    return conclude(results, matrix, (*hosts, *unreachable), fail_on=fail_on)
