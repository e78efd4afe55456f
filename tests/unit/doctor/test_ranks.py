"""Logs of the ranks of a job: whose they are, who failed first, and who is missing."""

from __future__ import annotations

import pytest

from provision.doctor.ranks import Ranks, read_ranks

OUT_OF_MEMORY = (
    "2024-05-01 12:00:{second:02d},000 step 4\nTraceback (most recent call last):\n"
    '  File "train.py", line 3, in <module>\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\n'
)
TIMEOUT = "[rank{rank}]:[E501 12:10:00.120000 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout\n"


def started(rank: int, world: int = 4) -> str:
    return f"host:10:20 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks {world} - Init COMPLETE\n"


def read(*texts: tuple[str, str]) -> Ranks:
    ranks = read_ranks(texts)
    assert ranks is not None
    return ranks


def test_the_rank_that_failed_by_itself_is_first_and_those_that_waited_follow() -> None:
    ranks = read(
        ("a", started(0) + TIMEOUT.format(rank=0)),
        ("b", started(1) + OUT_OF_MEMORY.format(second=1)),
        ("c", started(2) + TIMEOUT.format(rank=2)),
        ("d", started(3)),
    )
    assert ranks.first is not None
    assert (ranks.first.rank, ranks.deciding) == (1, {"b"})
    assert [row.rank for row in ranks.failed] == [0, 1, 2]
    assert ranks.say()[1] == "after it failed ranks 0, 2"


@pytest.mark.parametrize(("seconds", "first"), [((5, 9), 0), ((9, 5), 1)])
def test_of_several_the_earliest_is_first(seconds: tuple[int, int], first: int) -> None:
    texts = [(str(rank), started(rank, 2) + OUT_OF_MEMORY.format(second=second)) for rank, second in enumerate(seconds)]
    ranks = read(*texts)
    assert ranks.first is not None
    assert ranks.first.rank == first


def test_without_times_nobody_is_called_first() -> None:
    error = "Traceback (most recent call last):\nValueError: bad\n"
    ranks = read(("rank0.log", error), ("rank1.log", error))
    assert ranks.first is None
    assert "do not say" in ranks.say()[0]


def test_the_launchers_own_word_counts() -> None:
    error = "Traceback (most recent call last):\nValueError: bad\n"
    launcher = "Root Cause (first observed failure):\n[0]:\n  time : 2024-05-01\n  rank      : 1 (local_rank: 1)\n"
    ranks = read(("rank0.log", error), ("rank1.log", error), ("launcher", launcher))
    assert ranks.first is not None
    assert ranks.first.rank == 1


def test_a_rank_without_a_log_is_missing() -> None:
    ranks = read(("a", started(0)), ("b", started(2)), ("c", started(3)))
    assert (ranks.world, ranks.missing) == (4, (1,))
    assert ranks.say() == (
        "no rank's log has a line that reads like an error",
        "of 4 ranks, rank 1 has no log here: see whether it started",
    )


@pytest.mark.parametrize(
    ("name", "text", "rank"),
    [
        ("x", "[rank7]: hello\n", 7),
        ("x", "RANK=5\n", 5),
        ("x", "global_rank: 6, world_size: 8\n", 6),
        ("logs/rank_3.log", "", 3),
        ("attempt_0/2/stderr.log", "", 2),
        ("slurm-4711_4.out", "", 4),
        ("rank_1.log", "[rank9]: the lines decide, not the name\n", 9),
    ],
)
def test_whose_a_log_is(name: str, text: str, rank: int) -> None:
    assert rank in read((name, text), ("rank100.log", "")).names


def test_both_streams_of_a_rank_are_one_log() -> None:
    ranks = read(("0/stdout.log", "fine\n"), ("0/stderr.log", OUT_OF_MEMORY.format(second=1)), ("1/stderr.log", ""))
    assert ranks.names[0] == ("0/stdout.log", "0/stderr.log")
    assert [row.rank for row in ranks.failed] == [0]


def test_logs_of_no_rank_are_no_ranks() -> None:
    assert read_ranks([("dmesg", "a line\n"), ("syslog", "a line\n")]) is None
