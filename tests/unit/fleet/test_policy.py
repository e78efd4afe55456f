"""One step of scaling: a table of situations, what holds in all of them, and faults that the table must see."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.errors import UsageError
from provision.fleet import policy as engine
from provision.fleet.policy import Observation, Policy, State, decide
from provision.records import fields_of, replace

BUSY = Policy(
    minimum=2,
    maximum=10,
    metric="utilisation",
    target=70,
    out_above=85,
    in_below=30,
    out_after_seconds=60,
    in_after_seconds=300,
    out_cooldown_seconds=200,
    in_cooldown_seconds=900,
    idle_after_seconds=3600,
    out_step=3,
    in_step=2,
    may_drain=True,
    handles_spot=True,
)
QUEUE = replace(BUSY, metric="queue", target=1.0, out_above=1.2, in_below=0.8, minimum=0)
NOW = 10_000.0
HIGH = State(above_since=NOW - 60)
LOW = State(below_since=NOW - 300)


def see(nodes: int = 4, **rest: Any) -> Observation:
    return Observation(time_seconds=NOW, nodes=nodes, **rest)


# Name → policy, state, what is seen, action, count.
CASES: dict[str, tuple[Policy, State, Observation, str, int]] = {
    "between the thresholds": (BUSY, State(), see(utilisation_percent=60), "hold", 0),
    "exactly at the upper one": (BUSY, HIGH, see(utilisation_percent=85), "hold", 0),
    "just over it": (BUSY, HIGH, see(utilisation_percent=85.1), "out", 1),
    "exactly at the lower one": (BUSY, LOW, see(utilisation_percent=30), "hold", 0),
    "just under it": (BUSY, LOW, see(utilisation_percent=29.9), "in", 2),
    "high, but only now": (BUSY, State(), see(utilisation_percent=95), "hold", 0),
    "high, a second too short": (BUSY, State(above_since=NOW - 59), see(utilisation_percent=95), "hold", 0),
    "low, a second too short": (BUSY, State(below_since=NOW - 299), see(utilisation_percent=10), "hold", 0),
    "high for long enough": (BUSY, HIGH, see(utilisation_percent=95), "out", 2),
    "high, but nodes were added lately": (
        BUSY,
        replace(HIGH, last_out=NOW - 199),
        see(utilisation_percent=95),
        "hold",
        0,
    ),
    "high, the cool-down is over": (BUSY, replace(HIGH, last_out=NOW - 200), see(utilisation_percent=95), "out", 2),
    "high, nodes were taken away lately": (BUSY, replace(HIGH, last_in=NOW - 1), see(utilisation_percent=95), "out", 2),
    "low, nodes were added lately": (BUSY, replace(LOW, last_out=NOW - 899), see(utilisation_percent=10), "hold", 0),
    "low, nodes were taken away lately": (
        BUSY,
        replace(LOW, last_in=NOW - 899),
        see(utilisation_percent=10),
        "hold",
        0,
    ),
    "low, the cool-down is over": (BUSY, replace(LOW, last_in=NOW - 900), see(utilisation_percent=10), "in", 2),
    "the later of two changes counts": (
        BUSY,
        replace(LOW, last_in=NOW - 5000, last_out=NOW - 1),
        see(utilisation_percent=10),
        "hold",
        0,
    ),
    "the step bounds what is added": (BUSY, HIGH, see(6, utilisation_percent=100), "out", 3),
    "a step of one": (replace(BUSY, out_step=1), HIGH, see(6, utilisation_percent=100), "out", 1),
    "the maximum bounds it more": (BUSY, HIGH, see(9, utilisation_percent=100), "out", 1),
    "at the maximum": (BUSY, HIGH, see(10, utilisation_percent=100), "hold", 0),
    "nodes that start count to the maximum": (BUSY, HIGH, see(8, booting=1, utilisation_percent=100), "out", 1),
    "nodes that start share the load": (BUSY, HIGH, see(4, booting=2, utilisation_percent=90), "hold", 0),
    "nothing is taken away while nodes start": (BUSY, LOW, see(4, booting=1, utilisation_percent=10), "hold", 0),
    "the step bounds what is taken away": (BUSY, LOW, see(9, utilisation_percent=5), "in", 2),
    "the minimum bounds it more": (BUSY, LOW, see(3, utilisation_percent=5), "in", 1),
    "at the minimum": (BUSY, LOW, see(2, utilisation_percent=5), "hold", 0),
    "the target bounds it": (BUSY, LOW, see(10, utilisation_percent=29), "in", 2),
    "as many idle nodes as go": (BUSY, LOW, see(9, idle=2, utilisation_percent=5), "release", 2),
    "fewer idle nodes than go": (BUSY, LOW, see(9, idle=1, utilisation_percent=5), "in", 2),
    "only idle ones may go": (replace(BUSY, may_drain=False), LOW, see(9, idle=1, utilisation_percent=5), "release", 1),
    "none is idle": (replace(BUSY, may_drain=False), LOW, see(9, utilisation_percent=5), "hold", 0),
    "too few nodes": (BUSY, State(last_out=NOW), see(1, utilisation_percent=1), "out", 1),
    "too few nodes, load unknown": (BUSY, State(), see(1), "out", 1),
    "too many nodes": (BUSY, State(last_in=NOW), see(13, idle=13, utilisation_percent=100), "release", 3),
    "too many nodes, all at work": (
        replace(BUSY, may_drain=False),
        State(),
        see(13, utilisation_percent=50),
        "hold",
        0,
    ),
    "the load is not known": (BUSY, replace(HIGH, below_since=NOW - 999), see(), "hold", 0),
    "a notice, and the load needs the node": (BUSY, State(), see(4, noticed=1, utilisation_percent=60), "out", 1),
    "a notice, and the load does not": (BUSY, State(), see(4, noticed=1, utilisation_percent=40), "hold", 0),
    "two notices, and one node is needed": (BUSY, State(), see(6, noticed=2, utilisation_percent=58), "out", 1),
    "a notice, and nodes are too many anyway": (BUSY, LOW, see(8, noticed=1, utilisation_percent=10), "in", 2),
    "a notice that nobody handles": (
        replace(BUSY, handles_spot=False),
        State(),
        see(4, noticed=1, utilisation_percent=60),
        "hold",
        0,
    ),
    "a notice at the maximum": (BUSY, State(), see(10, noticed=1, utilisation_percent=80), "hold", 0),
    "a notice at the minimum": (BUSY, State(), see(2, noticed=1, utilisation_percent=40), "out", 1),
    "jobs wait": (QUEUE, HIGH, see(2, jobs_waiting=3, jobs_running=2), "out", 3),
    "jobs wait and there is no node": (QUEUE, HIGH, see(0, jobs_waiting=1, jobs_running=0), "out", 1),
    "no job and no node": (QUEUE, LOW, see(0, jobs_waiting=0, jobs_running=0), "hold", 0),
    "no job": (QUEUE, LOW, see(2, idle=2, jobs_waiting=0, jobs_running=0), "release", 2),
    "jobs that run keep their nodes": (QUEUE, LOW, see(4, idle=2, jobs_waiting=0, jobs_running=3), "release", 1),
    "half of the queue is not known": (QUEUE, HIGH, see(2, jobs_waiting=9), "hold", 0),
    "jobs a node at the upper threshold": (QUEUE, HIGH, see(5, jobs_waiting=1, jobs_running=5), "hold", 0),
    "jobs a node at the lower threshold": (QUEUE, LOW, see(5, idle=1, jobs_waiting=0, jobs_running=4), "hold", 0),
}


def answers(module: Any) -> dict[str, tuple[str, int, State]]:
    found = {}
    for name, (policy, state, seen, _, _) in CASES.items():
        try:
            said = module.decide(policy, state, seen)
        except (ArithmeticError, TypeError, ValueError):
            found[name] = ("crash", 0, state)
        else:
            found[name] = (said.action, said.count, said.state)
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_table(name: str) -> None:
    policy, state, seen, action, count = CASES[name]
    said = decide(policy, state, seen)
    assert (said.action, said.count) == (action, count), said.reason


def test_what_held_it_back_is_said() -> None:
    said = decide(BUSY, HIGH, see(9, utilisation_percent=100))
    assert "over 85 %" in said.reason
    assert "the most is 10 nodes, and 9 are there" in said.limits
    said = decide(replace(BUSY, may_drain=False), LOW, see(9, idle=1, utilisation_percent=5))
    assert "idle: 1 node; none with work on it is taken away" in said.limits
    assert said.wanted == 1


def test_a_change_is_remembered_and_waiting_begins_anew() -> None:
    said = decide(BUSY, HIGH, see(utilisation_percent=95))
    assert said.state == State(last_out=NOW)
    said = decide(BUSY, LOW, see(utilisation_percent=10))
    assert said.state == State(last_in=NOW)


def test_waiting_begins_with_the_first_high_figure_and_ends_with_the_first_that_is_not() -> None:
    state = decide(BUSY, State(), see(utilisation_percent=95)).state
    assert state.above_since == NOW
    assert decide(BUSY, HIGH, see(utilisation_percent=95)).state.above_since is None, "nodes were added"
    assert decide(BUSY, State(above_since=NOW - 30), see(utilisation_percent=80)).state.above_since is None
    assert decide(BUSY, State(above_since=NOW - 30), see()).state.above_since is None, "unknown is not high"
    assert decide(BUSY, State(above_since=NOW - 30), see(utilisation_percent=95)).state.above_since == NOW - 30


# What a change of each field must be seen by: field → another value. Those that only others read are not decided by.
MOVED: dict[str, Any] = {
    "minimum": 3,
    "maximum": 9,
    "metric": "queue",
    "target": 60,
    "out_above": 86,
    "in_below": 29,
    "out_after_seconds": 61,
    "in_after_seconds": 301,
    "out_cooldown_seconds": 201,
    "in_cooldown_seconds": 901,
    "out_step": 2,
    "in_step": 1,
    "may_drain": False,
    "handles_spot": False,
}
READ_ELSEWHERE = {"idle_after_seconds", "waiting_expression", "running_expression"}


@pytest.mark.parametrize("field", MOVED)
def test_each_number_of_a_policy_decides_something(field: str) -> None:
    """Move one number of the policy: an answer in the table must change."""
    changed = []
    for name, (policy, state, seen, _, _) in CASES.items():
        if policy.metric == "utilisation":
            moved = replace(policy, **{field: MOVED[field]} | ({"in_below": 0.5} if field == "metric" else {}))
            if decide(moved, state, seen).action != decide(policy, state, seen).action or (
                decide(moved, state, seen).count != decide(policy, state, seen).count
            ):
                changed.append(name)
    assert changed


def test_no_number_was_forgotten() -> None:
    assert set(MOVED) | READ_ELSEWHERE == set(fields_of(Policy))


# Faults of the program: what stands there → what stands there instead. The table must see each of them.
FAULTS = {
    "strictly above": ("if level > policy.out_above:", "if level >= policy.out_above:"),
    "strictly below": ("if level < policy.in_below:", "if level <= policy.in_below:"),
    "noting what is above": (
        "level is not None and level > policy.out_above",
        "level is not None and level < policy.out_above",
    ),
    "noting what is below": (
        "level is not None and level < policy.in_below",
        "level is not None and level > policy.in_below",
    ),
    "the unknown changes nothing": ("if level is None or wanted is None:", "if wanted is None and level == 0:"),
    "rounding up": ("math.ceil(load / policy.target - _DUST)", "math.floor(load / policy.target)"),
    "the waiting time": ("_rest(self.state.above_since, policy.out_after_seconds, now)", "0"),
    "the other waiting time": ("_rest(self.state.below_since, policy.in_after_seconds, now)", "0"),
    "the cool-down": ("_rest(self.state.last_out, policy.out_cooldown_seconds, now)", "0"),
    "the other cool-down": ("_rest(max(changes, default=None), policy.in_cooldown_seconds, now)", "0"),
    "which change was last": ("max(changes, default=None)", "min(changes, default=None)"),
    "both changes": ("(self.state.last_out, self.state.last_in) if", "(self.state.last_in,) if"),
    "what starts counts": ("total = seen.nodes + seen.booting", "total = seen.nodes"),
    "what goes does not": ("staying = total - lost", "staying = total"),
    "only where it is asked for": ("seen.noticed if policy.handles_spot else 0", "seen.noticed"),
    "not more than was lost": ("min(wanted - staying, lost)", "max(wanted - staying, lost)"),
    "only what is needed": ("if lost and wanted > staying:", "if lost:"),
    "waiting for what starts": ("if self.seen.booting:", "if False:"),
    "the minimum": ("if staying < policy.minimum:", "if staying < policy.minimum - 1:"),
    "the maximum": ("if staying > policy.maximum:", "if staying > policy.maximum + 5:"),
    "the room below": ("self.policy.maximum - self.total", "self.policy.maximum - self.staying"),
    "the room above": (
        "room = _Room(count).cut(self.staying - policy.minimum,",
        "room = _Room(count).cut(self.staying,",
    ),
    "the step out": ("if policy.out_step is not None:", "if False:"),
    "the step in": ("if policy.in_step is not None and not is_forced:", "if False:"),
    "the step does not bind what must be": ("is not None and not is_forced:", "is not None:"),
    "work is left alone": ("if not policy.may_drain:", "if False:"),
    "idle or not": ('"release" if room.size <= idle else "in"', '"release" if room.size < idle else "in"'),
    "remembering out": ("last_out=self.seen.time_seconds", "last_out=None"),
    "remembering in": ("last_in=self.seen.time_seconds", "last_in=None"),
    "the whole queue": ("return seen.jobs_waiting + seen.jobs_running", "return seen.jobs_waiting"),
    "of all nodes": ("seen.utilisation_percent * seen.nodes", "seen.utilisation_percent"),
    "a queue without a node": ("(math.inf if load else 0.0)", "0.0"),
}
SOURCE = Path(engine.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name: str) -> None:
    right, wrong = FAULTS[name]
    assert SOURCE.count(right) == 1, f"`{right}` stands {SOURCE.count(right)} times in the program"
    broken = ModuleType("broken")
    exec(compile(SOURCE.replace(right, wrong), "broken", "exec"), broken.__dict__)  # noqa: S102 - our own source
    assert answers(broken) != answers(SimpleNamespace(decide=decide))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"nodes": -1}, "`nodes` -1"),
        ({"nodes": 2, "idle": 2, "noticed": 1}, "2 idle and 1 noticed"),
        ({"nodes": 2, "utilisation_percent": 101}, "101"),
        ({"nodes": 2, "utilisation_percent": math.nan}, "nan"),
        ({"nodes": 2, "jobs_waiting": -1}, "-1"),
        ({"nodes": 2, "booting": -1}, "`booting`"),
    ],
)
def test_what_cannot_have_been_seen_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Observation(time_seconds=0, **words)
    assert caught.value.hints


# ── what holds for every policy and every fleet ──────────────────────────────────────────────────────────────


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    metric = draw(st.sampled_from(("utilisation", "queue")))
    top = 99.0 if metric == "utilisation" else 20.0
    low, target, high = sorted(
        draw(st.lists(st.floats(0.05, top, allow_nan=False), min_size=3, max_size=3, unique=True))
    )
    least = draw(st.integers(1 if metric == "utilisation" else 0, 20))
    seconds = st.integers(0, 900)
    return Policy(
        minimum=least,
        maximum=draw(st.integers(max(least, 1), 60)),
        metric=metric,
        target=target,
        out_above=high,
        in_below=low,
        out_after_seconds=draw(seconds),
        in_after_seconds=draw(seconds),
        out_cooldown_seconds=draw(seconds),
        in_cooldown_seconds=draw(seconds),
        idle_after_seconds=0,
        out_step=draw(st.none() | st.integers(1, 9)),
        in_step=draw(st.none() | st.integers(1, 9)),
        may_drain=draw(st.booleans()),
        handles_spot=draw(st.booleans()),
    )


@st.composite
def sights(draw: st.DrawFn, policy: Policy, time: float) -> Observation:
    nodes = draw(st.integers(0, 80))
    noticed = draw(st.integers(0, nodes))
    share = draw(st.none() | st.floats(0, 100, allow_nan=False))
    jobs = draw(st.none() | st.floats(0, 500, allow_nan=False))
    is_activity = policy.metric == "utilisation"
    return Observation(
        time_seconds=time,
        nodes=nodes,
        booting=draw(st.integers(0, 20)),
        idle=draw(st.integers(0, nodes - noticed)),
        noticed=noticed,
        utilisation_percent=share if is_activity else None,
        jobs_waiting=None if is_activity else jobs,
        jobs_running=None if is_activity or jobs is None else draw(st.floats(0, 80, allow_nan=False)),
    )


states = st.builds(
    State,
    above_since=st.none() | st.floats(0, 2000),
    below_since=st.none() | st.floats(0, 2000),
    last_out=st.none() | st.floats(0, 2000),
    last_in=st.none() | st.floats(0, 2000),
)


@settings(max_examples=200)
@given(st.data())
def test_no_decision_leaves_the_bounds(data: st.DataObject) -> None:
    policy = data.draw(policies())
    seen = data.draw(sights(policy, 2000.0))
    said = decide(policy, data.draw(states), seen)
    total = seen.nodes + seen.booting
    staying = total - (seen.noticed if policy.handles_spot else 0)
    assert said.count >= 0
    assert (said.count == 0) == (said.action == "hold")
    if said.action == "out":
        assert total + said.count <= policy.maximum
    if said.action in ("in", "release"):
        assert staying - said.count >= policy.minimum
        assert policy.may_drain or said.count <= seen.idle
    if said.action == "release":
        assert said.count <= seen.idle
    if said.level is None and policy.minimum <= staying <= policy.maximum:
        assert said.action == "hold"


@settings(max_examples=200)
@given(st.data())
def test_cool_downs_are_held(data: st.DataObject) -> None:
    policy = data.draw(policies())
    state = data.draw(states)
    seen = data.draw(sights(policy, 2000.0))
    staying = seen.nodes + seen.booting - (seen.noticed if policy.handles_spot else 0)
    said = decide(policy, state, seen)
    if not policy.minimum <= staying <= policy.maximum:
        return
    if said.action == "out" and not (policy.handles_spot and seen.noticed):
        assert state.last_out is None or 2000.0 - state.last_out >= policy.out_cooldown_seconds
    if said.action in ("in", "release"):
        for last in (state.last_out, state.last_in):
            assert last is None or 2000.0 - last >= policy.in_cooldown_seconds


@settings(max_examples=100)
@given(st.data())
def test_a_constant_load_comes_to_rest(data: st.DataObject) -> None:
    """A load that does not change ends in a number of nodes that does not either, and never changes direction twice."""
    policy = replace(data.draw(policies()), handles_spot=False)
    load = data.draw(st.floats(0, 60, allow_nan=False))
    nodes = data.draw(st.integers(policy.minimum, policy.maximum))
    state, time, directions, said = State(), 0.0, [], None
    for _ in range(150):
        if policy.metric == "utilisation":
            # As a fleet is seen: a node is at most fully busy, so a load beyond that shows only bit by bit.
            share = min(100.0, 100.0 * load / nodes) if nodes else None
            seen = Observation(time_seconds=time, nodes=nodes, idle=nodes, utilisation_percent=share)
        else:
            seen = Observation(time_seconds=time, nodes=nodes, idle=nodes, jobs_waiting=0, jobs_running=load)
        said = decide(policy, state, seen)
        state = said.state
        if said.count:
            nodes += said.count if said.action == "out" else -said.count
            directions.append(said.action == "out")
        time += 1900.0
    # Two looks a change are enough for any policy here, and steps of one: by now it is at rest.
    assert len(directions) <= policy.maximum - policy.minimum
    assert said is not None
    assert said.action == "hold"
    assert len(set(directions)) <= 1, "it grew and shrank under the same load"
