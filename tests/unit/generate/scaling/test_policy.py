"""What makes no sense as a policy is refused with the input, the reason and the way out."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from provision.cli.policy_file import policy_limits
from provision.errors import UsageError
from provision.generate.scaling.policy import METRICS, REQUIRED, read_policy
from provision.matrix.load import Matrix

LIMITS = policy_limits(Matrix())
LEAST: dict[str, Any] = {"minimum": 1, "maximum": 8, "metric": "utilisation"}


@pytest.mark.parametrize("metric", METRICS)
def test_the_facts_fill_in_what_nobody_says(metric: str) -> None:
    policy = read_policy({**LEAST, "metric": metric}, LIMITS)
    assert policy.in_below < policy.target <= policy.out_above
    assert policy.in_below == LIMITS[f"policy.in-below.{metric}"]
    assert policy.idle_after_seconds == LIMITS["policy.idle-after"]


def test_the_page_shows_the_defaults() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "scaling.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- file: policy.toml -->\n```toml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    shown = tomllib.loads(block[1])
    policy = read_policy({key: shown[key] for key in REQUIRED}, LIMITS)
    differs = {key for key, value in shown.items() if getattr(policy, key) != value}
    assert differs == {"out_step", "in_step", "handles_spot"}


def test_what_is_idle_for_the_alerts_is_idle_here() -> None:
    assert read_policy(LEAST, LIMITS).in_below == Matrix().limit("idle.activity")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"minimum": 9}, "`minimum` 9 is more than `maximum` 8"),
        ({"minimum": -1}, "`minimum` -1"),
        ({"minimum": 1.5}, "`minimum` 1.5"),
        ({"minimum": True}, "`minimum` True"),
        ({"minimum": 0}, "`minimum` 0 does not go with the utilisation"),
        ({"minimum": 0, "maximum": 0, "metric": "queue"}, "`maximum` 0 leaves no node"),
        ({"maximum": 10**9}, "`maximum` 1000000000"),
        ({"metric": "utilization"}, "`metric` cannot be `utilization`"),
        ({"target": -1}, "`target` -1"),
        ({"target": 20}, "`target` 20 does not lie above"),
        ({"target": 90}, "`target` 90 does not lie above"),
        ({"target": float("nan")}, "`target` nan"),
        ({"target": "much"}, "`target` much"),
        ({"out_above": 100}, "`out_above` 100 is never passed"),
        ({"out_above": 101}, "`out_above` 101"),
        ({"in_below": 85}, "`in_below` 85 is not below `out_above` 85"),
        ({"in_below": 90}, "`in_below` 90 is not below `out_above` 85"),
        ({"in_below": -0.1}, "`in_below` -0.1"),
        ({"out_after_seconds": -1}, "`out_after_seconds` -1"),
        ({"in_cooldown_seconds": 10**9}, "`in_cooldown_seconds` 1000000000"),
        ({"out_step": 0}, "`out_step` 0"),
        ({"in_step": -2}, "`in_step` -2"),
        ({"may_drain": "yes"}, "`may_drain` is `yes`"),
        ({"waiting_expression": "a\nb"}, "`waiting_expression` is not an expression"),
        ({"running_expression": " "}, "`running_expression` is not an expression"),
        ({"targets": 1}, "`targets` is not a key of a policy"),
        ({"a\nb": 1}, r"`a\\nb` is not a key"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read_policy({**LEAST, **words}, LIMITS)
    assert caught.value.hints, "there must be a way out"


@pytest.mark.parametrize("key", LEAST)
def test_what_nobody_can_guess_must_be_said(key: str) -> None:
    with pytest.raises(UsageError, match=f"lacks `{key}`"):
        read_policy({name: value for name, value in LEAST.items() if name != key}, LIMITS)


def test_a_slip_of_the_pen_is_recognised() -> None:
    with pytest.raises(UsageError) as caught:
        read_policy({**LEAST, "metric": "utilization"}, LIMITS)
    assert "did you mean `utilisation`?" in caught.value.hints
