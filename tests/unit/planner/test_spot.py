"""Interruptions: the published numbers, the limits, and a simulation that knows no formula."""

from __future__ import annotations

import math
import random

import pytest

from provision.errors import DataError, UsageError
from provision.planner.spot import daly_interval, expected_hours, interrupt, mtbf_of_bin, young_interval

MINUTES = 60


@pytest.mark.parametrize(("mtbf_hours", "minutes"), [(24, 116.7), (6, 56.7), (0.25, 9.1)])
def test_the_interval_is_the_one_daly_publishes(mtbf_hours, minutes):
    """FGCS 22 (2006), figures 3 to 5: 117, 57 and 9.1 minutes for checkpoints of 5 minutes."""
    assert daly_interval(5 / MINUTES, mtbf_hours) * MINUTES == pytest.approx(minutes, abs=0.05)


def test_youngs_interval_is_the_first_term_of_dalys():
    assert young_interval(0.001, 1000) == pytest.approx(daly_interval(0.001, 1000), rel=0.001)


def test_a_checkpoint_that_takes_longer_than_the_machine_lasts():
    assert daly_interval(3.0, 1.0) == 1.0


@pytest.mark.parametrize("mtbf_hours", [2.0, 24.0])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_interval_is_the_best_one(mtbf_hours, factor):
    """Half or twice as often costs more."""

    def total(interval: float) -> float:
        return expected_hours(
            100.0, mtbf_hours=mtbf_hours, checkpoint_hours=0.05, restart_hours=0.1, interval_hours=interval
        )

    best = daly_interval(0.05, mtbf_hours)
    assert total(best) < total(best * factor)


def simulate(work: float, mtbf: float, checkpoint: float, restart: float, interval: float, seed: int) -> float:
    """Run a job that is interrupted at random, restarts included."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    clock, done = 0.0, 0.0
    failure = chance.expovariate(1 / mtbf)
    while done < work:
        step = min(interval, work - done) + checkpoint
        if clock + step <= failure:
            clock, done = clock + step, done + min(interval, work - done)
            continue
        clock = failure
        while True:
            failure = clock + chance.expovariate(1 / mtbf)
            if clock + restart <= failure:
                clock += restart
                break
            clock = failure
    return clock


@pytest.mark.parametrize(("mtbf", "checkpoint", "restart"), [(6.0, 0.1, 0.2), (24.0, 0.05, 0.1), (2.0, 0.05, 0.1)])
def test_a_simulation_agrees(mtbf, checkpoint, restart):
    interval = daly_interval(checkpoint, mtbf)
    runs = [simulate(50.0, mtbf, checkpoint, restart, interval, seed) for seed in range(800)]
    reckoned = expected_hours(
        50.0, mtbf_hours=mtbf, checkpoint_hours=checkpoint, restart_hours=restart, interval_hours=interval
    )
    assert reckoned == pytest.approx(sum(runs) / len(runs), rel=0.03)


def test_without_checkpoints_a_long_job_never_ends():
    lost = interrupt(5000.0, mtbf_hours=6.0, checkpoint_hours=0.1, restart_hours=0.1, has_checkpoints=False)
    assert lost.factor == math.inf
    assert lost.interval_hours is None
    assert interrupt(48.0, mtbf_hours=6.0, checkpoint_hours=0.1, restart_hours=0.1).factor < 1.3


def test_what_is_saved_all_the_time_loses_nothing_but_restarts():
    free = interrupt(100.0, mtbf_hours=10.0, checkpoint_hours=0.0, restart_hours=1.0)
    cheap = interrupt(100.0, mtbf_hours=10.0, checkpoint_hours=1e-9, restart_hours=1.0)
    assert free.factor == pytest.approx(cheap.factor, rel=1e-3)


def test_no_work_takes_no_time():
    assert interrupt(0.0, mtbf_hours=1.0, checkpoint_hours=0.1, restart_hours=0.1).factor == 1.0


@pytest.mark.parametrize(("label", "percent"), [("<5%", 5), ("5-10%", 10), ("15-20%", 20)])
def test_the_share_taken_back_in_a_month_gives_the_time_between(label, percent):
    mtbf = mtbf_of_bin(label, 720.0)
    assert 1 - math.exp(-720.0 / mtbf) == pytest.approx(percent / 100)


def test_a_share_without_an_upper_end_gives_none():
    assert mtbf_of_bin(">20%", 720.0) is None


@pytest.mark.parametrize("label", ["often", "0%", "100%", "<%"])
def test_a_share_that_is_none_is_a_fault_of_the_facts(label):
    with pytest.raises(DataError):
        mtbf_of_bin(label, 720.0)


@pytest.mark.parametrize(("checkpoint", "mtbf"), [(0.1, 0.0), (0.1, -1.0), (-0.1, 1.0), (0.1, math.inf), (math.nan, 1)])
def test_times_that_are_none_are_refused(checkpoint, mtbf):
    with pytest.raises(UsageError):
        daly_interval(checkpoint, mtbf)
