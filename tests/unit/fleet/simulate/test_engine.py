"""Replayed loads: small cases by hand, queues by their formula, and what holds for every trace and policy."""

from __future__ import annotations

import math
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from provision.errors import UsageError
from provision.fleet.policy import Policy
from provision.fleet.simulate.engine import simulate, size_for_mean, size_for_peak
from provision.fleet.simulate.model import Interruptions, Machines
from provision.fleet.simulate.trace import Job, Trace, read_trace

HOUR = 3600.0
TRACES = Path(__file__).parents[4] / "docs/traces"


def machines(**changes: Any) -> Machines:
    values: dict[str, Any] = {
        "gpus": 1,
        "usd_per_hour": 1.0,
        "boot_seconds": 0.0,
        "billing_minimum_seconds": 0.0,
        "step_seconds": 60.0,
    }
    return Machines(**(values | changes))


def policy(**changes: Any) -> Policy:
    values: dict[str, Any] = {
        "minimum": 0,
        "maximum": 4,
        "metric": "queue",
        "target": 1.0,
        "out_above": 1.0,
        "in_below": 0.5,
        "out_after_seconds": 0.0,
        "in_after_seconds": 0.0,
        "out_cooldown_seconds": 0.0,
        "in_cooldown_seconds": 0.0,
        "idle_after_seconds": 0.0,
    }
    return Policy(**(values | changes))


def trace(*jobs: tuple[float, float, int], end: float | None = None) -> Trace:
    rows = tuple(
        Job(line=line, arrival=arrival, duration=duration, gpus=gpus)
        for line, (arrival, duration, gpus) in enumerate(jobs, 2)
    )
    return Trace(jobs=rows, end=jobs[-1][0] if end is None else end)


# By hand


def test_jobs_wait_for_each_other_on_one_node() -> None:
    # The second waits 50 s and the third 90 s.
    found = simulate(trace((0, 100, 1), (50, 60, 1), (70, 10, 1)), machines(), name="one", fixed=1)
    assert (found.queue_mean_seconds, found.queue_max_seconds) == pytest.approx((140 / 3, 90))
    assert found.end_seconds == 170
    assert found.node_hours == pytest.approx(170 / HOUR)
    assert found.utilisation_percent == pytest.approx(100)


def test_small_jobs_share_a_node_and_the_fullest_is_filled_first() -> None:
    found = simulate(trace((0, 60, 2), (0, 60, 3), (0, 60, 1), (0, 60, 2)), machines(gpus=4), name="two", fixed=2)
    assert found.queue_max_seconds == 0
    assert found.nodes_busy_most == 2


def test_nobody_overtakes_a_job_that_needs_several_nodes() -> None:
    found = simulate(trace((0, 100, 1), (10, 10, 2), (20, 10, 1)), machines(), name="two", fixed=2)
    # The job of two nodes waits for both until 100 s, and the last one stands behind it until 110 s.
    assert found.queue_max_seconds == 90
    assert found.queue_mean_seconds == pytest.approx((0 + 90 + 90) / 3)


def test_boot_time_is_waited_for_and_billed() -> None:
    found = simulate(
        trace((0, 600, 1), end=600), machines(boot_seconds=300), name="p", policy=policy(idle_after_seconds=0)
    )
    assert found.queue_max_seconds == 300
    assert found.node_hours == pytest.approx(900 / HOUR)


def test_node_costs_its_minimum_however_short_it_was_there() -> None:
    # The job begins at the step at 0 s, its node is given back at the step at 120 s.
    short = simulate(trace((0, 90, 1), end=HOUR), machines(), name="p", policy=policy())
    least = simulate(trace((0, 90, 1), end=HOUR), machines(billing_minimum_seconds=600), name="p", policy=policy())
    assert short.node_hours == pytest.approx(120 / HOUR)
    assert least.node_hours == pytest.approx(600 / HOUR)


def test_idle_node_is_given_back_after_its_time_and_not_before() -> None:
    found = simulate(trace((0, 60, 1), end=HOUR), machines(), name="p", policy=policy(idle_after_seconds=600))
    assert found.node_hours == pytest.approx(660 / HOUR)
    assert found.series[-1] == (660, 0)


def test_cool_down_delays_the_second_addition() -> None:
    load = trace((0, 1000, 1), (60, 1000, 1), end=60)
    free = simulate(load, machines(), name="p", policy=policy())
    held = simulate(load, machines(), name="p", policy=policy(out_cooldown_seconds=300))
    assert free.queue_max_seconds == 0
    assert held.queue_max_seconds == 240


def test_utilisation_grows_a_busy_fleet() -> None:
    load = trace(*((0, 1200, 1) for _ in range(4)))
    by = policy(metric="utilisation", minimum=1, target=60.0, out_above=85.0, in_below=30.0)
    found = simulate(load, machines(), name="p", policy=by)
    assert found.nodes_most > 1
    assert found.jobs == 4


def test_node_with_work_is_drained_where_it_may_be() -> None:
    load = trace((0, 3000, 1), (0, 60, 1), (0, 60, 1), (0, 60, 1), end=6000)
    by = policy(minimum=1, in_below=0.9, may_drain=True)
    found = simulate(load, machines(), name="p", policy=by)
    assert found.lost_gpu_hours == 0
    assert found.series[-1][1] == 1


# Interruptions


def spot(**changes: Any) -> Interruptions:
    values: dict[str, Any] = {"mtbf": 4 * HOUR, "warning": 120.0, "checkpoint": 60.0, "restart": 30.0, "interval": None}
    return Interruptions(**(values | changes))


LONG = trace(*((place * 1800.0, 4 * HOUR, 1) for place in range(40)))


def test_warning_long_enough_loses_nothing() -> None:
    by = policy(maximum=10, handles_spot=True)
    found = simulate(LONG, machines(interruptions=spot()), name="p", policy=by, seed=3)
    assert found.interruptions > 10
    assert found.lost_gpu_hours == 0
    # Each restart takes half a minute and each save a minute.
    assert found.saving_gpu_hours > 0


def test_warning_too_short_loses_what_was_not_saved() -> None:
    by = policy(maximum=10, handles_spot=True)
    none = simulate(LONG, machines(interruptions=spot(checkpoint=200.0)), name="p", policy=by, seed=3)
    some = simulate(
        LONG, machines(interruptions=spot(checkpoint=200.0, interval=HOUR / 2)), name="p", policy=by, seed=3
    )
    assert none.lost_gpu_hours > some.lost_gpu_hours > 0
    # Half of an interval is lost in the mean, and the time from the notice to the end is worked on.
    assert some.lost_gpu_hours / some.interruptions < 0.5


def test_loss_by_hand() -> None:
    # One node, one job of 2 h, saved every 1000 s in 100 s; the first interruption is known from the seed.
    interruptions = spot(mtbf=HOUR, warning=10.0, checkpoint=100.0, restart=50.0, interval=1000.0)
    life = random.Random("5/0").expovariate(1 / HOUR)  # noqa: S311 - no secret
    assert 1100 < life + 10 < 5 * 1100
    found = simulate(
        trace((0, 7200, 1)),
        machines(interruptions=interruptions),
        name="p",
        policy=policy(minimum=1, maximum=1),
        seed=5,
    )
    rounds, rest = divmod(life + 10, 1100)
    first = min(rest, 1000.0) / HOUR
    assert found.lost_gpu_hours >= first - 1e-9
    assert found.jobs == 1
    # All that the nodes did was work, saving, loss, or nothing while they waited.
    work = 7200 / HOUR
    assert found.node_hours >= work + found.lost_gpu_hours + found.saving_gpu_hours - 1e-6
    assert rounds >= 1


def test_job_that_can_never_end_is_refused() -> None:
    hopeless = spot(mtbf=60.0, warning=1.0, checkpoint=100.0)
    with pytest.raises(UsageError, match="never ends"):
        simulate(trace((0, 7200, 1)), machines(interruptions=hopeless), name="p", policy=policy(minimum=1))


def test_seed_decides_and_nothing_else() -> None:
    by = policy(maximum=10, handles_spot=True)
    runs = [simulate(LONG, machines(interruptions=spot()), name="p", policy=by, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


# Queues with a formula


def test_one_server_with_even_work_waits_as_pollaczek_and_khinchine_say() -> None:
    # M/D/1: the mean wait is rho / (2 (1 - rho)) of a job's length.
    rho, length = 0.7, 100.0
    random_ = random.Random(11)  # noqa: S311 - no secret
    time, jobs = 0.0, []
    for _ in range(60_000):
        time += random_.expovariate(rho / length)
        jobs.append((time, length, 1))
    found = simulate(trace(*jobs), machines(), name="M/D/1", fixed=1)
    assert found.queue_mean_seconds == pytest.approx(length * rho / (2 * (1 - rho)), rel=0.05)


def test_even_arrivals_that_fit_never_wait() -> None:
    # D/D/2 at 95 %.
    found = simulate(trace(*((place * 50.0, 95.0, 1) for place in range(500))), machines(), name="D/D/2", fixed=2)
    assert found.queue_max_seconds == 0
    assert found.utilisation_percent == pytest.approx(95, abs=0.5)


def test_fleet_that_is_too_small_falls_behind_by_its_formula() -> None:
    # D/D/1 at 200 %: job number n waits n times the half of a job.
    found = simulate(trace(*((place * 50.0, 100.0, 1) for place in range(100))), machines(), name="D/D/1", fixed=1)
    assert found.queue_max_seconds == 99 * 50
    assert found.queue_mean_seconds == pytest.approx(99 * 50 / 2)
    assert found.queue_p95_seconds == 94 * 50


# Sizes


def test_peak_is_the_least_fleet_in_which_nobody_waits() -> None:
    load = trace((0, 100, 1), (10, 100, 3), (20, 100, 2), (150, 10, 4))
    size = size_for_peak(load, machines(gpus=4))
    assert size == 2
    assert simulate(load, machines(gpus=4), name="", fixed=size).queue_max_seconds == 0
    assert simulate(load, machines(gpus=4), name="", fixed=size - 1).queue_max_seconds > 0


def test_mean_is_the_work_by_the_time() -> None:
    load = trace(*((place * 100.0, 250.0, 1) for place in range(100)))
    assert size_for_mean(load, machines()) == 3
    assert size_for_mean(trace((0, 10, 8), (1000, 10, 1)), machines(gpus=4)) == 2


# What is refused


def test_job_larger_than_the_fleet_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match="line 2 fits into no fleet of 4 nodes"):
        simulate(trace((0, 10, 9)), machines(gpus=2), name="p", policy=policy())


def test_job_that_the_policy_never_makes_room_for_is_refused() -> None:
    by = policy(minimum=1, target=1.0)
    with pytest.raises(UsageError, match="line 2 waits for ever") as caught:
        simulate(trace((0, 10, 3)), machines(), name="p", policy=by)
    assert "--count gpus" in caught.value.hints[0]
    assert simulate(trace((0, 10, 3)), machines(), name="p", policy=by, unit="gpus").jobs == 1


@pytest.mark.parametrize("minimum", [0, 1])
def test_a_lull_is_no_deadlock(minimum: int) -> None:
    """A job that comes after a night without any waits as long as one at the beginning, and is not refused."""
    by = policy(minimum=minimum, out_after_seconds=600.0)
    load = trace((0, 600, 2), (20 * HOUR, 600, 2))
    found = simulate(load, machines(boot_seconds=300), name="p", policy=by, unit="gpus")
    assert found.queue_mean_seconds == found.queue_max_seconds == 900


@pytest.mark.parametrize("name", ["stages", "day-night", "steady"])
def test_a_fleet_may_shrink_to_nothing_on_the_shipped_loads(name: str) -> None:
    load = read_trace((TRACES / f"{name}.csv").read_text(encoding="utf-8"), name)
    values = tomllib.loads((TRACES / "queue.toml").read_text(encoding="utf-8"))
    found = simulate(load, machines(gpus=4, boot_seconds=300), name="p", policy=policy(**values | {"minimum": 0}))
    assert found.nodes_least == 0
    assert found.jobs == len(load.jobs)


@pytest.mark.parametrize(
    "change", [{"gpus": 0}, {"usd_per_hour": -1.0}, {"boot_seconds": math.inf}, {"step_seconds": 0.0}], ids=str
)
def test_machines_that_make_no_sense_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="makes no sense"):
        machines(**change)


@pytest.mark.parametrize("change", [{"mtbf": 0.0}, {"warning": -1.0}, {"interval": 0.0}], ids=str)
def test_interruptions_that_make_no_sense_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="makes no sense"):
        spot(**change)


# What always holds

JOBS = st.lists(
    st.tuples(st.floats(min_value=0, max_value=20_000), st.floats(min_value=1, max_value=5_000), st.integers(1, 8)),
    min_size=1,
    max_size=25,
)
WAITS = st.sampled_from([0.0, 60.0, 300.0])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    minimum = draw(st.integers(0, 2))
    return policy(
        minimum=minimum,
        # The largest job has eight GPUs on nodes of four.
        maximum=draw(st.integers(2, 6)),
        target=draw(st.sampled_from([1.0, 2.0])),
        out_above=2.0,
        in_below=0.5,
        out_after_seconds=draw(WAITS),
        in_after_seconds=draw(WAITS),
        out_cooldown_seconds=draw(WAITS),
        in_cooldown_seconds=draw(WAITS),
        idle_after_seconds=draw(WAITS),
        out_step=draw(st.sampled_from([None, 1])),
        may_drain=draw(st.booleans()),
        handles_spot=draw(st.booleans()),
    )


@settings(max_examples=150)
@given(jobs=JOBS, by=policies(), boot=WAITS, has_spot=st.booleans(), seed=st.integers(0, 50))
def test_jobs_are_kept_and_bounds_hold(
    jobs: list[tuple[float, float, int]], by: Policy, boot: float, has_spot: bool, seed: int
) -> None:
    load = trace(*sorted(jobs))
    nodes = machines(
        gpus=4,
        boot_seconds=boot,
        billing_minimum_seconds=60.0,
        interruptions=spot(interval=900.0) if has_spot else None,
    )
    try:
        found = simulate(load, nodes, name="p", policy=by, seed=seed, unit="gpus")
    except UsageError as error:
        assume("waits for ever" not in error.message)
        raise
    # Every job that arrived was finished, once.
    assert found.jobs == len(jobs)
    # Nobody works for nothing.
    assert found.node_hours * 4 >= load.gpu_seconds / HOUR - 1e-6
    assert found.usd == pytest.approx(found.node_hours)
    assert 0 <= found.utilisation_percent <= 100 + 1e-6
    # GPU hours are work, saving, loss, or idle.
    assert found.node_hours * 4 >= load.gpu_seconds / HOUR + found.lost_gpu_hours + found.saving_gpu_hours - 1e-6
    assert found.nodes_most <= max(by.maximum, by.minimum)
    assert all(count <= by.maximum for _, count in found.series)
    assert 0 <= found.queue_mean_seconds <= found.queue_max_seconds
    assert found.queue_p95_seconds <= found.queue_max_seconds
    if not has_spot:
        assert found.interruptions == 0
        assert found.lost_gpu_hours == 0


@settings(max_examples=60)
@given(jobs=JOBS, boot=WAITS)
def test_no_policy_beats_the_work_and_the_peak_has_no_queue(jobs: list[tuple[float, float, int]], boot: float) -> None:
    load = trace(*sorted(jobs))
    nodes = machines(gpus=4, boot_seconds=boot)
    size = size_for_peak(load, nodes)
    peak = simulate(load, nodes, name="peak", fixed=size)
    assert peak.queue_max_seconds == 0
    assert peak.nodes_busy_most == size
    mean = simulate(load, nodes, name="mean", fixed=size_for_mean(load, nodes))
    assert mean.jobs == len(jobs)
    assert min(peak.usd, mean.usd) >= load.gpu_seconds / 4 / HOUR - 1e-6
