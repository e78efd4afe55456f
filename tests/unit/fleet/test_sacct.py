"""Slurm's accounting: jobs and their GPUs are read, steps left out, and a wrong line is named."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.fleet.sacct import SACCT, read_sacct
from provision.fleet.simulate.trace import read_trace

HEADING = SACCT.rpartition(" ")[2].replace(",", "|")
JOBS = f"""{HEADING}
101|train|ann|vision|gpu|2026-11-20T08:00:00|2026-11-20T08:05:00|2026-11-20T10:05:00|7200|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1
101.batch|batch||||2026-11-20T08:05:00|2026-11-20T08:05:00|2026-11-20T10:05:00|7200|cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1
102|prepare|bob|chem|cpu|2026-11-20T08:00:00|2026-11-20T08:05:00|2026-11-20T10:05:00|7200|billing=8,cpu=8,node=1
103|dock|bob|chem|gpu|2026-11-20T09:00:00|Unknown|Unknown|0|
104|dock|bob|chem|gpu|2026-11-20T07:00:00|2026-11-20T09:05:00|Unknown|3600|cpu=8,gres/gpu:h100=2,gres/gpu:a100=1,node=2
"""


def test_jobs_are_read_and_steps_are_none() -> None:
    jobs = read_sacct(JOBS, "jobs.txt")
    assert [(job.labels["job"], job.gpus, job.elapsed) for job in jobs] == [
        ("101 train", 4, 7200),
        ("102 prepare", 0, 7200),
        ("103 dock", 0, 0),
        ("104 dock", 3, 3600),
    ]
    assert jobs[0].labels == {"job": "101 train", "user": "ann", "account": "vision", "partition": "gpu"}
    assert jobs[0].end is not None
    assert jobs[0].start is not None
    assert jobs[0].end - jobs[0].start == 7200
    assert jobs[3].end is None


def test_columns_may_stand_in_any_order_and_others_beside_them() -> None:
    (job,) = read_sacct("AllocTRES|State|ElapsedRaw\ngres/gpu=2|COMPLETED|60\n", "jobs.txt")
    assert (job.gpus, job.elapsed, job.submit, job.labels) == (2, 60, None, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JobID|State\n1|DONE\n", "no column ElapsedRaw and AllocTRES"),
        ("ElapsedRaw|AllocTRES\n60\n", "jobs.txt:2: 1 values for the 2 columns"),
        ("ElapsedRaw|AllocTRES\n1:00|gres/gpu=1\n", "jobs.txt:2: ElapsedRaw `1:00`"),
        ("Submit|ElapsedRaw|AllocTRES\nyesterday|60|gres/gpu=1\n", "jobs.txt:2: `yesterday` is not a time"),
        ("ElapsedRaw|AllocTRES\n", "has no job"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_sacct(text, "jobs.txt")
    assert said in str(caught.value)
    assert caught.value.hints or "ElapsedRaw `" in said


def test_a_load_is_replayed_from_it_as_it_is_printed() -> None:
    trace = read_trace(JOBS, "jobs.txt")
    assert [(job.arrival, job.duration, job.gpus) for job in trace.jobs] == [(0, 3600, 3), (3600, 7200, 4)]
    without_names = "2026-11-20T08:00:00|60|gres/gpu=2\n2026-11-20T08:01:00|30|gres/gpu=1\n"
    trace = read_trace(without_names, "jobs.txt")
    assert [(job.arrival, job.duration, job.gpus) for job in trace.jobs] == [(0, 60, 2), (60, 30, 1)]


def test_a_load_without_gpus_is_none() -> None:
    with pytest.raises(UsageError, match="no job that was given a GPU"):
        read_trace("Submit|ElapsedRaw|AllocTRES\n2026-11-20T08:00:00|60|cpu=2\n", "jobs.txt")
