"""Recorded loads: what is read, and what is refused with its line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.errors import UsageError
from provision.fleet.simulate.trace import read_trace


def test_jobs_are_read_from_the_time_of_the_first() -> None:
    trace = read_trace("# a note\ntime_seconds,duration_seconds,gpus\n100,60,2\n\n160.5,30,1\n", "load.csv")
    assert [(job.line, job.arrival, job.duration, job.gpus) for job in trace.jobs] == [(3, 0, 60, 2), (5, 60.5, 30, 1)]
    assert trace.end == 60.5
    assert trace.gpu_seconds == 150


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_spreadsheet_may_part_columns_its_own_way(separator: str) -> None:
    text = "\ufefftime_seconds,duration_seconds,gpus\r\n0,60.5,2\r\n".replace(",", separator)
    (job,) = read_trace(text, "load.csv").jobs
    assert (job.duration, job.gpus) == (60.5, 2)


def test_a_decimal_comma_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        read_trace("time_seconds;duration_seconds;gpus\n0;60,5;2\n", "load.csv")
    assert caught.value.because == ("a point parts decimals",)


def test_series_becomes_jobs_that_last_until_the_next_line() -> None:
    trace = read_trace("time_seconds,gpus_busy\n0,2\n60,0\n120,1\n180,0\n", "load.csv")
    assert [(job.arrival, job.duration, job.gpus) for job in trace.jobs] == [(0, 60, 1), (0, 60, 1), (120, 60, 1)]
    assert trace.end == 180


def test_parts_of_a_gpu_are_carried_on() -> None:
    trace = read_trace("time_seconds,gpus_busy\n0,0.4\n60,0.4\n120,0.4\n180,0.4\n240,0.4\n300,0\n", "load.csv")
    assert trace.gpu_seconds == 120


@given(
    busy=st.lists(st.floats(min_value=0, max_value=20, allow_nan=False), min_size=1, max_size=40),
    step=st.integers(min_value=1, max_value=3600),
)
def test_work_of_a_series_is_kept_but_for_half_a_job(busy: list[float], step: int) -> None:
    lines = [f"{place * step},{value!r}" for place, value in enumerate([*busy, 0.0])]
    work = sum(busy) * step
    try:
        trace = read_trace("time_seconds,gpus_busy\n" + "\n".join(lines), "load.csv")
    except UsageError:
        assert work <= step / 2 + 1e-6
        return
    assert abs(trace.gpu_seconds - work) <= step / 2 + 1e-6


JOBS = "time_seconds,duration_seconds,gpus\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "load.csv records nothing"),
        ("time,gpus\n1,2\n", "load.csv:1: `time,gpus` does not name the columns"),
        (JOBS, "names its columns and records nothing"),
        (JOBS + "1,2\n", "load.csv:2: 2 values for 3 columns"),
        (JOBS + "1,2,x\n", "load.csv:2: `x` is not a value for `gpus`"),
        (JOBS + "1,nan,1\n", "load.csv:2: `nan` is not a value for `duration_seconds`"),
        (JOBS + "1,-2,1\n", "load.csv:2: `-2` is not a value for `duration_seconds`"),
        (JOBS + "1,0,1\n", "load.csv:2: a job of 0 s is none"),
        (JOBS + "1,2,1.5\n", "load.csv:2: 1.5 is not a number of GPUs"),
        (JOBS + "1,2,0\n", "load.csv:2: 0 is not a number of GPUs"),
        (JOBS + "5,2,1\n4,2,1\n", "load.csv:3: 4 s comes after 5 s"),
        ("time_seconds,gpus_busy\n0,1\n0,1\n", "load.csv:2: two lines are of 0 s"),
        ("time_seconds,gpus_busy\n0,0\n60,1\n", "load.csv records no busy GPU"),
        (JOBS + "1,\x1b[31m,1\n", r"load.csv:2: `\x1b[31m` is not a value"),
    ],
)
def test_line_that_says_nothing_is_named(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_trace(text, "load.csv")
    assert words in caught.value.message


@given(st.text(max_size=200))
def test_rubbish_is_refused_and_never_breaks(text: str) -> None:
    with contextlib.suppress(UsageError):
        read_trace(text, "load.csv")
