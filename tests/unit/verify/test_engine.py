"""Every check is asked, every answer is kept, and unknown is never a pass."""

from __future__ import annotations

from types import SimpleNamespace

import machines
import pytest
from verdicts import verify_hosts

from provision.matrix.load import Matrix
from provision.matrix.model import Check
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.signals import catalogue
from provision.signals.expectation import Expectation
from provision.signals.signal import failed, passed, skipped, unknown
from provision.verify import engine
from provision.verify.engine import (
    REACH,
    choose_checks,
    compare_hosts,
    conclude,
    fleet_probes,
    unreached,
    verify_one,
)


def row(name: str, *, level="quick", severity="high", scope="host", needs=()) -> Check:
    return Check(
        id=name,
        level=level,
        severity=severity,
        scope=scope,
        title="it is fine",
        remedy="Repair it.",
        runbook=f"docs/runbooks.md#{name.replace('.', '-')}",
        needs=needs,
        probes=("uname",),
        source=("guide",),
        where="table",
        status="stated",
        confidence="high",
    )


def facts(*rows: Check) -> SimpleNamespace:
    return SimpleNamespace(checks={check.id: check for check in rows})


@pytest.fixture
def answers(monkeypatch):
    """Check id → the function that plays its module's part."""
    known = {}
    monkeypatch.delenv("PROVISION_DEBUG", raising=False)
    monkeypatch.setattr(catalogue, "find_signal", known.__getitem__)
    return known


HOST = Snapshot("gpu001", {})


def ask(check: Check, expected=None, host: Snapshot = HOST):
    (result,) = verify_one(host, expected or Expectation(), facts(check), [check])
    return result


def test_level_includes_the_lower_ones() -> None:
    matrix = facts(row("a.quick"), row("a.standard", level="standard"), row("a.deep", level="deep"))
    assert [check.id for check in choose_checks(matrix, "quick")] == ["a.quick"]
    assert [check.id for check in choose_checks(matrix, "deep")] == ["a.quick", "a.standard", "a.deep"]


def test_checks_are_chosen_by_id_or_by_its_beginning() -> None:
    matrix = facts(row("gpu.temp"), row("gpu.ecc.mode"), row("gpux"), row("host.os"))
    assert [check.id for check in choose_checks(matrix, "quick", only=["gpu"])] == ["gpu.temp", "gpu.ecc.mode"]
    assert [check.id for check in choose_checks(matrix, "quick", without=["gpu.ecc"])] == [
        "gpu.temp",
        "gpux",
        "host.os",
    ]


def test_answer_carries_what_the_facts_say_of_the_check(answers) -> None:
    answers["gpu.temp"] = lambda *_: failed("GPU 3 has 97 C", "at most 85 C")
    result = ask(row("gpu.temp"))
    assert (result.check, result.target, result.severity, result.remedy) == ("gpu.temp", "gpu001", "high", "Repair it.")
    assert result.outcome.seen == "GPU 3 has 97 C"


def test_remedy_of_the_answer_comes_before_that_of_the_facts(answers) -> None:
    answers["gpu.temp"] = lambda *_: failed("hot", remedy="Open the window.")
    assert ask(row("gpu.temp")).remedy == "Open the window."


def test_what_cannot_be_read_is_unknown(answers) -> None:
    def check(host, expected, matrix):
        raise Unreadable("nvidia-smi did not answer in time")

    answers["gpu.temp"] = check
    result = ask(row("gpu.temp"))
    assert (result.outcome.status, result.outcome.seen) == ("unknown", "nvidia-smi did not answer in time")


def test_a_check_that_breaks_is_unknown_and_takes_no_other_with_it(answers) -> None:
    def check(host, expected, matrix):
        raise ZeroDivisionError("by zero")

    answers |= {"a": check, "b": lambda *_: passed("well")}
    first, second = verify_one(HOST, Expectation(), facts(row("a"), row("b")), [row("a"), row("b")])
    assert first.outcome.status == "unknown"
    assert "ZeroDivisionError: by zero" in first.outcome.seen
    assert second.outcome.status == "pass"


def test_need_that_is_not_met_skips_without_asking(answers) -> None:
    answers["gpu.temp"] = lambda *_: pytest.fail("it was asked")
    result = ask(row("gpu.temp", needs=("gpu",)), Expectation(gpus=0), machines.snapshot(machines.cpu_only()))
    assert (result.outcome.status, result.outcome.seen) == ("skip", "no GPU is expected and none is there")


def test_missing_gpu_is_skipped_only_where_the_plan_says_so(answers) -> None:
    answers["gpu.temp"] = lambda *_: failed("there is none")
    host = machines.snapshot(machines.cpu_only())
    assert ask(row("gpu.temp", needs=("gpu",)), Expectation(), host).outcome.status == "fail"
    assert ask(row("gpu.temp", needs=("gpu",)), Expectation(gpus=1), host).outcome.status == "fail"


def test_gpu_that_is_there_against_the_plan_is_judged(answers) -> None:
    answers["gpu.temp"] = lambda *_: failed("hot")
    host = machines.snapshot(machines.hgx_h100())
    assert ask(row("gpu.temp", needs=("gpu",)), Expectation(gpus=0), host).outcome.status == "fail"


def test_need_that_cannot_be_judged_makes_unknown(answers) -> None:
    answers["fabric.manager"] = lambda *_: passed("well")
    assert ask(row("fabric.manager", needs=("nvswitch",))).outcome.status == "unknown"


@pytest.mark.parametrize(
    ("outcome", "severity", "fail_on", "is_failure"),
    [
        pytest.param(failed("x"), "medium", "medium", True, id="fail-at-the-bar"),
        pytest.param(failed("x"), "low", "medium", False, id="fail-below-the-bar"),
        pytest.param(failed("x"), "high", "critical", False, id="fail-below-a-high-bar"),
        pytest.param(unknown("x"), "high", "medium", True, id="unknown-that-must-be-known"),
        pytest.param(unknown("x"), "medium", "medium", False, id="unknown-that-need-not"),
        pytest.param(unknown("x"), "medium", "low", True, id="unknown-with-the-lowest-bar"),
        pytest.param(unknown("x"), "high", "critical", False, id="unknown-below-the-highest-bar"),
        pytest.param(unknown("x"), "critical", "critical", True, id="unknown-at-the-highest-bar"),
        pytest.param(skipped("x"), "critical", "low", False, id="skip"),
        pytest.param(passed("x"), "critical", "low", False, id="pass"),
    ],
)
def test_what_counts_as_a_failure(answers, outcome, severity, fail_on, is_failure) -> None:
    answers["a"] = lambda *_: outcome
    assert ask(row("a", severity=severity)).is_failure(fail_on) is is_failure


def test_nothing_asked_is_not_a_success() -> None:
    assert not conclude([], facts(), []).is_ok


def test_target_that_was_not_reached_is_one_critical_failure() -> None:
    verdict = conclude([unreached("gpu002", "connection refused")], facts(), ["gpu002"])
    assert not verdict.is_ok
    assert [(row.check, row.outcome.seen) for row in verdict.failures] == [(REACH, "connection refused")]


def test_order_is_that_of_the_targets_then_of_the_facts(answers) -> None:
    answers |= {"b": lambda *_: passed("x"), "a": lambda *_: passed("x")}
    matrix = facts(row("b"), row("a"))
    hosts = {name: Snapshot(name, {}) for name in ("z", "y")}
    verdict = verify_hosts(hosts, dict.fromkeys(hosts, Expectation()), matrix, list(matrix.checks.values()))
    assert [(result.target, result.check) for result in verdict.results] == [
        ("z", "b"),
        ("z", "a"),
        ("y", "b"),
        ("y", "a"),
    ]


def fleet(answers, compare, hosts, expected=None, **settings):
    answers["net.mtu"] = compare
    check = row("net.mtu", scope="fleet", **settings)
    plans = expected or dict.fromkeys(hosts, Expectation())
    return {result.target: result.outcome for result in compare_hosts(hosts, plans, facts(check), [check])}


def test_comparison_of_one_host_is_skipped(answers) -> None:
    outcomes = fleet(answers, lambda *_: pytest.fail("it was asked"), {"one": HOST})
    assert outcomes["one"].status == "skip"


def test_host_that_a_comparison_leaves_out_is_unknown(answers) -> None:
    outcomes = fleet(answers, lambda *_: {"one": passed("1500")}, {"one": HOST, "two": HOST})
    assert [outcome.status for outcome in outcomes.values()] == ["pass", "unknown"]


def test_host_without_what_a_comparison_needs_is_skipped_and_the_others_compared(answers) -> None:
    hosts = {name: machines.snapshot(machines.hgx_h100(), name) for name in ("one", "two")}
    hosts["three"] = machines.snapshot(machines.cpu_only(), "three")
    plans = {"one": Expectation(), "two": Expectation(), "three": Expectation(gpus=0)}
    outcomes = fleet(
        answers, lambda asked, *_: dict.fromkeys(asked, passed("equal")), hosts, expected=plans, needs=("gpu",)
    )
    assert [outcomes[name].status for name in ("one", "two", "three")] == ["pass", "pass", "skip"]


def test_comparison_that_breaks_is_unknown_on_every_host(answers) -> None:
    def compare(hosts, expected, matrix):
        raise KeyError("mtu")

    outcomes = fleet(answers, compare, {"one": HOST, "two": HOST})
    assert {outcome.status for outcome in outcomes.values()} == {"unknown"}


def test_what_is_kept_for_comparisons_is_what_they_read() -> None:
    assert fleet_probes([row("a")]) == frozenset()
    assert {"uname", "pci"} <= fleet_probes([row("a", scope="fleet")])


def test_what_every_check_names_as_the_way_on_can_be_asked():
    assert {engine.way_on(name) for name in Matrix().checks} == {
        f"provision explain check/{name}" for name in Matrix().checks
    }
    assert engine.way_on(engine.REACH) == ""
    assert engine.REACH not in Matrix().checks
