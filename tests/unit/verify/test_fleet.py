"""The same failure on many hosts is one finding, and the odd host is named."""

from __future__ import annotations

import machines

from provision.signals.signal import failed, passed, unknown
from provision.verify.engine import Result, Verdict
from provision.verify.fleet import TRAITS, find_differences, group_failures, read_traits


def result(target: str, outcome, *, check="gpu.temp", severity="high") -> Result:
    return Result(
        check=check,
        target=target,
        level="quick",
        severity=severity,
        title="cool",
        outcome=outcome,
        remedy="Cool it.",
        runbook="docs/runbooks.md#gpu-temp",
    )


def groups(*results: Result):
    return group_failures(Verdict(results=results))


def test_failures_that_differ_in_device_and_numbers_are_one_group() -> None:
    (group,) = groups(
        result("a", failed("GPU 3 (0000:5d:00.0) has 97 C")), result("b", failed("GPU 0 (0000:18:00.0) has 91 C"))
    )
    assert group.targets == ("a", "b")
    assert group.seen == "GPU 3 (0000:5d:00.0) has 97 C"


def test_failures_that_differ_in_a_version_stay_apart() -> None:
    found = groups(result("a", failed("the kernel runs 570.195.03")), result("b", failed("the kernel runs 580.95.05")))
    assert [group.targets for group in found] == [("a",), ("b",)]


def test_failure_and_unknown_stay_apart() -> None:
    found = groups(result("a", unknown("it hung")), result("b", failed("it hung")))
    assert [(group.status, group.targets) for group in found] == [("fail", ("b",)), ("unknown", ("a",))]


def test_worst_first_then_the_widest() -> None:
    found = groups(
        result("a", failed("x"), check="one", severity="medium"),
        result("a", failed("x"), check="two"),
        result("a", failed("x"), check="three"),
        result("b", failed("x"), check="three"),
        result("a", failed("x"), check="four", severity="critical"),
    )
    assert [group.check for group in found] == ["four", "three", "two", "one"]


def test_passes_make_no_group() -> None:
    assert groups(result("a", passed("fine"))) == ()


def test_every_trait_reads_on_a_healthy_machine() -> None:
    traits = read_traits(machines.snapshot(machines.hgx_h100()))
    assert set(traits) == set(TRAITS)
    assert traits["GPUs"] == "8 x NVIDIA H100 80GB HBM3"
    assert traits["driver"] == machines.snapshot(machines.hgx_h100()).driver.version
    assert all(traits.values())


def test_trait_of_what_was_not_collected_is_empty() -> None:
    assert read_traits(machines.snapshot({}))["driver"] == ""


def test_odd_host_is_named_with_what_it_has() -> None:
    traits = {f"gpu{number:03}": {"driver": "580.105.08", "kernel": "6.8"} for number in range(9)}
    traits["gpu004"] = {"driver": "570.195.03", "kernel": "6.8"}
    traits["gpu007"] = {"driver": "", "kernel": "6.8"}
    (difference,) = find_differences(traits)
    assert (difference.trait, difference.majority, difference.majority_count) == ("driver", "580.105.08", 7)
    assert difference.targets == {"": ("gpu007",), "570.195.03": ("gpu004",)}


def test_equal_hosts_have_no_difference() -> None:
    traits = {name: {"driver": "580.105.08"} for name in ("a", "b")}
    assert find_differences(traits) == ()


def test_what_one_host_alone_tells_is_no_difference() -> None:
    assert find_differences({"a": {"driver": "580.105.08"}, "b": {"driver": ""}}) == ()
