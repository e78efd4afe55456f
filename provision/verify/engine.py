"""Ask every check of a level about every target, and lose no answer."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from provision.matrix.load import Matrix
from provision.matrix.model import Check
from provision.probe.catalogue import LEVELS
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.records import record
from provision.signals import catalogue
from provision.signals.expectation import Expectation
from provision.signals.signal import FAIL, UNKNOWN, Signal, failed, skipped, unknown

SEVERITIES = ("critical", "high", "medium", "low")
REACH = "host.reachable"
"""Id of the answer that stands for a target nothing could be collected from."""


@record
class Result:
    """One check's answer about one target, with what the facts say of the check."""

    check: str
    target: str
    level: str
    severity: str
    title: str
    outcome: Signal
    remedy: str
    runbook: str
    source: tuple[str, ...] = ()

    def is_failure(self, fail_on: str) -> bool:
        """Tell whether it makes the whole fail.

        Args:
            fail_on: The lowest severity whose failures count. An unknown counts from ``high`` up, or from there where
                that is lower: what must be known and is not has not been proved.
        """
        rank = SEVERITIES.index(self.severity)
        if self.outcome.status == FAIL:
            return rank <= SEVERITIES.index(fail_on)
        if self.outcome.status == UNKNOWN:
            return rank <= SEVERITIES.index("low" if fail_on == "low" else min("high", fail_on, key=SEVERITIES.index))
        return False


@record
class Verdict:
    """All answers, by target in the order asked, within a target in the order of the facts."""

    results: tuple[Result, ...]
    fail_on: str = "medium"

    @property
    def failures(self) -> tuple[Result, ...]:
        """The answers that make it fail."""
        return tuple(result for result in self.results if result.is_failure(self.fail_on))

    @property
    def is_ok(self) -> bool:
        """Whether something was asked and nothing failed."""
        return bool(self.results) and not self.failures


def choose_checks(
    matrix: Matrix, level: str, *, only: Collection[str] = (), without: Collection[str] = ()
) -> tuple[Check, ...]:
    """Return the checks of a level, those of lower ones included.

    Args:
        matrix: The facts.
        level: One of ``LEVELS``.
        only: Ids, or beginnings of ids up to a dot (``gpu`` for ``gpu.temp``); all when empty.
        without: Likewise, to leave out.
    """
    highest = LEVELS.index(level)
    return tuple(
        check
        for check in matrix.checks.values()
        if LEVELS.index(check.level) <= highest
        and (not only or _is_named(check.id, only))
        and not _is_named(check.id, without)
    )


def _is_named(check: str, names: Collection[str]) -> bool:
    return any(check == name or check.startswith(f"{name}.") for name in names)


def verify_one(host: Snapshot, expected: Expectation, matrix: Matrix, checks: Collection[Check]) -> tuple[Result, ...]:
    """Ask the checks of one host, those of a fleet left out."""
    return tuple(
        _result(check, host.target, _ask(check, host, expected, matrix)) for check in checks if check.scope == "host"
    )


def compare_hosts(
    hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix, checks: Collection[Check]
) -> tuple[Result, ...]:
    """Ask the checks that compare hosts; of each snapshot only what :func:`fleet_probes` names is read."""
    return tuple(
        _result(check, name, outcome)
        for check in checks
        if check.scope == "fleet"
        for name, outcome in _compare(check, hosts, expected, matrix).items()
    )


def fleet_probes(checks: Collection[Check]) -> frozenset[str]:
    """Return what must be kept of a snapshot until all hosts have answered."""
    # The needs of a check ask these.
    always = {"infiniband", "pci", "virtualization"}
    probes = {probe for check in checks if check.scope == "fleet" for probe in check.probes}
    return frozenset(probes | always) if probes else frozenset()


def conclude(results: Iterable[Result], matrix: Matrix, targets: Sequence[str], *, fail_on: str = "medium") -> Verdict:
    """Put answers in order: targets as asked, within a target as the facts list the checks."""
    place = {name: number for number, name in enumerate(targets)}
    order = {check: number for number, check in enumerate(matrix.checks)}
    ordered = sorted(results, key=lambda row: (place.get(row.target, len(place)), order.get(row.check, -1)))
    return Verdict(results=tuple(ordered), fail_on=fail_on)


def way_on(check: str) -> str:
    """Return the command that says more about a check; empty for the answer about a target that was not reached."""
    return "" if check == REACH else f"provision explain check/{check}"


def unreached(target: str, why: str) -> Result:
    """Return the one answer about a target that nothing could be collected from."""
    return Result(
        check=REACH,
        target=target,
        level="quick",
        severity="critical",
        title="the target answers",
        outcome=failed(why, "an answer"),
        remedy="Reach the target by hand with the same user and settings, then run this again.",
        runbook="docs/runbooks.md#host-reachable",
    )


def _ask(check: Check, host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    try:
        return catalogue.read_signal(check, host, expected, matrix)
    except Unreadable as error:
        return unknown(error.reason)
    except Exception as error:  # one broken check must not take the answers of a thousand hosts with it
        return _broken(error)


def _broken(error: Exception) -> Signal:
    if os.environ.get("PROVISION_DEBUG"):
        raise error
    return unknown(
        f"the check itself broke: {type(error).__name__}: {error}",
        remedy="This is a bug of provision: `PROVISION_DEBUG=1` shows where. Please report it with a support bundle.",
    )


class _Chosen(Mapping[str, Snapshot]):
    """Some of many snapshots, which are looked at where they are: they may be packed, and there may be thousands."""

    def __init__(self, hosts: Mapping[str, Snapshot], names: Sequence[str]) -> None:
        self._hosts = hosts
        self._names = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Snapshot:
        if name not in self._names:
            raise KeyError(name)
        return self._hosts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _compare(
    check: Check, hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix
) -> Mapping[str, Signal]:
    if len(hosts) < 2:
        return {name: skipped("it compares hosts, and there is one") for name in hosts}
    names: list[str] = []
    answered: dict[str, Signal] = {}
    for name, host in hosts.items():
        try:
            why = catalogue.why_not_asked(check, host, expected[name], matrix)
        except Unreadable as error:
            answered[name] = unknown(error.reason)
            continue
        if why is None:
            names.append(name)
        else:
            answered[name] = skipped(why)
    asked = _Chosen(hosts, names)
    outcomes: Mapping[str, Signal] = {}
    try:
        if len(asked) >= 2:
            outcomes = catalogue.find_signal(check.id)(asked, expected, matrix)
        else:
            answered |= dict.fromkeys(asked, skipped("it compares hosts, and one is left to compare"))
    except Unreadable as error:
        outcomes = dict.fromkeys(asked, unknown(error.reason))
    except Exception as error:  # as above
        outcomes = dict.fromkeys(asked, _broken(error))
    return {name: answered.get(name) or outcomes.get(name) or unknown("the comparison left it out") for name in hosts}


def _result(check: Check, target: str, outcome: Signal) -> Result:
    return Result(
        check=check.id,
        target=target,
        level=check.level,
        severity=check.severity,
        title=check.title,
        outcome=outcome,
        remedy=outcome.remedy or check.remedy,
        runbook=check.runbook,
        source=check.source,
    )
