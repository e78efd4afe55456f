"""The past of a Prometheus becomes the state that a policy goes on from."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.fleet.observe import observe, recall
from provision.fleet.policy import Policy, State
from provision.generate.fleet_page import Line
from provision.generate.scaling.policy import read_policy
from provision.matrix.load import Matrix

LIMITS = {
    "policy.target": 70.0,
    "policy.out-above": 85.0,
    "policy.in-below": 30.0,
    "policy.out-after": 60.0,
    "policy.in-after": 300.0,
    "policy.out-cooldown": 300.0,
    "policy.in-cooldown": 300.0,
    "policy.idle-after": 3600.0,
}
POLICY = read_policy({"minimum": 1, "maximum": 8, "metric": "utilisation"}, LIMITS)


def levels(*values: float | None) -> list[tuple[float, float]]:
    """Points every 30 s, the missing ones left out."""
    return [(30.0 * number, value) for number, value in enumerate(values) if value is not None]


@pytest.mark.parametrize(
    ("points", "above", "below"),
    [
        (levels(), None, None),
        (levels(90, 90, 90), 0.0, None),
        (levels(90, 50, 90, 90), 60.0, None),
        (levels(90, 90, 50), None, None),
        (levels(90, 90, 85), None, None),
        (levels(10, 10, 10), None, 0.0),
        (levels(10, 30, 10), None, 60.0),
        (levels(90, None, 90), 0.0, None),
        (levels(90, None, None, 90), 90.0, None),
    ],
    ids=str,
)
def test_a_run_is_as_long_as_it_is_unbroken(
    points: list[tuple[float, float]], above: float | None, below: float | None
) -> None:
    state = recall(POLICY, points, (), 30.0)
    assert (state.above_since, state.below_since) == (above, below)


def test_the_last_change_of_each_kind_is_remembered() -> None:
    assert recall(POLICY, (), levels(4, 5, 5, 4, 6, 6), 30.0) == State(last_out=120.0, last_in=90.0)
    assert recall(POLICY, (), levels(4, 4, 4), 30.0) == State()


class Server:
    """STAND-IN: a Prometheus with four nodes, of which one is idle, and 90 % of load for ten minutes."""

    address = "http://prometheus.example"

    def ask(self, expression: str, *, at: float | None = None) -> tuple[Line, ...]:
        del at
        if expression == "vector(time())":
            return (Line(labels={}, points=((1e6, 1e6),)),)
        if expression in ("avg(gpu:activity:percent)", "sum(waiting)", "sum(running)"):
            return (Line(labels={}, points=((1e6, {"a": 90.0}.get(expression[0], 3.0)),)),)
        values = {
            "node:gpu_visible:count": (8, 8, 8, 8),
            "avg_over_time": (95, 95, 95, 1),
            "count_over_time": (8, 8, 8, 8),
            "memory_used": (60_000, 60_000, 60_000, 1),
            "spot_notice": (1, 0, 0, 0),
        }
        for key, row in values.items():
            if "bool" not in expression and key in expression:
                return tuple(
                    Line(labels={"node": f"n{number}"}, points=((1e6, float(value)),))
                    for number, value in enumerate(row, 1)
                )
        return ()

    def ask_span(self, expression: str, *, start: float, end: float, step: float) -> tuple[Line, ...]:
        assert start < end
        times = [start + number * step for number in range(round((end - start) / step) + 1)]
        if "," in expression:
            return (Line(labels={"a": "1"}, points=()), Line(labels={"a": "2"}, points=()))
        value = 4.0 if expression.startswith("count(") else 360.0 if "activity" in expression else 6.0
        return (Line(labels={}, points=tuple((when, value) for when in times)),)


def test_all_that_a_step_needs_is_asked_for() -> None:
    seen = observe(Server(), Matrix(), POLICY)  # type: ignore[arg-type]
    look = seen.observation
    assert (look.nodes, look.idle, look.noticed, look.utilisation_percent) == (4, 1, 1, 90.0)
    assert seen.idle == ("n4",)
    assert seen.state.above_since is not None
    assert look.time_seconds - seen.state.above_since >= POLICY.out_after_seconds
    assert seen.state.last_out is None


def queue(**rest: str) -> Policy:
    chosen = {"minimum": 1, "maximum": 8, "metric": "queue", "target": 1.0, "out_above": 1.0, "in_below": 0.5}
    return read_policy({**chosen, **rest}, LIMITS)


def test_a_queue_is_counted_by_the_series_that_the_policy_names() -> None:
    policy = queue(waiting_expression="sum(waiting)", running_expression="sum(running)")
    look = observe(Server(), Matrix(), policy).observation  # type: ignore[arg-type]
    assert (look.jobs_waiting, look.jobs_running, look.utilisation_percent) == (3.0, 3.0, None)


def test_a_queue_without_a_series_is_refused() -> None:
    with pytest.raises(UsageError, match="where the queue is seen") as caught:
        observe(Server(), Matrix(), queue())  # type: ignore[arg-type]
    assert any("waiting_expression" in hint for hint in caught.value.hints)


def test_a_queue_of_several_series_is_refused() -> None:
    policy = queue(waiting_expression="sum by (a, b) (waiting)", running_expression="sum(running)")
    with pytest.raises(UsageError, match="2 series"):
        observe(Server(), Matrix(), policy)  # type: ignore[arg-type]
