"""Public threads: the messages that people posted get the causes that were settled there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provision.matrix.load import Matrix
from tools import score_threads

MATRIX = Matrix()
THREADS = {name: score_threads.read_rows(files[0]) for name, files in score_threads.SETS.items()}
DEV = [row for row in THREADS["known"] if score_threads.part_of(row) == "dev"]
PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"


@pytest.mark.parametrize("name", sorted({*score_threads.SETS} & {"blind", "known", "third"}))
def test_parts_share_no_repository_and_a_third_is_held_out(name: str) -> None:
    held = [row for row in THREADS[name] if score_threads.part_of(row) == "held"]
    dev = [row for row in THREADS[name] if row not in held]
    places = [{"/".join(row["address"].split("/")[:5]).lower() for row in part} for part in (held, dev)]
    assert not places[0] & places[1]
    assert len(held) * 100 >= len(THREADS[name]) * 35


def test_no_thread_stands_twice_and_each_has_its_facts() -> None:
    rows = [row for part in THREADS.values() for row in part]
    assert len({row["address"] for row in rows}) == len(rows) >= 900
    assert all(row["lines"] and row["fix"] and row["family"] for row in rows)
    assert all(row["cause"] or row["settled"] for row in rows)


def test_causes_of_the_threads_are_diagnoses() -> None:
    known = MATRIX.diagnoses.keys()
    assert {cause for part in THREADS.values() for row in part for cause in row["cause"]} <= known


def test_threads_that_messages_were_written_from_are_explained() -> None:
    verdicts = [verdict for _, verdict, _ in score_threads.score(DEV, MATRIX)]
    assert verdicts.count("right") >= 183
    assert verdicts.count("wrong") <= 1


def test_threads_of_the_blind_set_are_explained_and_few_wrongly() -> None:
    verdicts = [verdict for _, verdict, _ in score_threads.score(THREADS["blind"], MATRIX)]
    assert verdicts.count("right") >= 136
    assert verdicts.count("wrong") <= 4


def test_threads_of_the_third_set_are_explained_and_none_wrongly() -> None:
    verdicts = [verdict for _, verdict, _ in score_threads.score(THREADS["third"], MATRIX)]
    assert verdicts.count("right") >= 85
    assert verdicts.count("wrong") == 0


def test_threads_of_the_fourth_set_that_messages_were_written_from_are_explained() -> None:
    dev = [row for row in THREADS["fourth"] if score_threads.part_of(row) == "dev"]
    verdicts = [verdict for _, verdict, _ in score_threads.score(dev, MATRIX)]
    assert verdicts.count("right") >= 44
    assert verdicts.count("wrong") == 0


def test_threads_of_the_fifth_set_that_messages_were_written_from_are_explained() -> None:
    dev = [row for row in THREADS["fifth"] if score_threads.part_of(row) == "dev"]
    verdicts = [verdict for _, verdict, _ in score_threads.score(dev, MATRIX)]
    assert verdicts.count("right") >= 73
    assert verdicts.count("wrong") == 0


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("seventh", 49, 0),
        ("eighth", 53, 4),
        ("ninth", 70, 4),
        ("tenth", 54, 0),
        ("eleventh", 52, 0),
        ("twelfth", 22, 3),
        ("thirteenth", 54, 3),
        ("fourteenth", 55, 0),
        ("fifteenth", 40, 0),
        ("breadth", 100, 2),
    ],
)
def test_threads_of_the_last_sets_are_explained_and_few_wrongly(name: str, right: int, wrong: int) -> None:
    verdicts = [verdict for _, verdict, _ in score_threads.score(THREADS[name], MATRIX)]
    assert verdicts.count("right") >= right
    assert verdicts.count("wrong") <= wrong


def test_threads_of_the_sixth_set_are_explained_and_few_wrongly() -> None:
    verdicts = [verdict for _, verdict, _ in score_threads.score(THREADS["sixth"], MATRIX)]
    assert verdicts.count("right") >= 91
    assert verdicts.count("wrong") <= 2


@pytest.mark.parametrize(
    "row",
    [row for files in score_threads.SETS.values() for file in files[1:] for row in score_threads.read_rows(file)],
    ids=lambda row: row["name"],
)
def test_healthy_log_is_met_with_silence(row: dict[str, list[str]]) -> None:
    assert score_threads.answer(row["lines"], MATRIX) == ()


@pytest.mark.parametrize(
    ("name", "part"), sorted({(name, score_threads.part_of(row)) for name, rows in THREADS.items() for row in rows})
)
def test_page_tells_the_score(name: str, part: str) -> None:
    told = re.search(rf"^\| {name} \| {part} \|" + r" (\d+) \|" * 5, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert told is not None
    counts = score_threads.summary(name, part, MATRIX)
    wanted = (counts.total(), counts["right"], counts["open"], counts["wrong"], counts["silent"])
    assert tuple(map(int, told.groups())) == wanted


def test_one_more_wrong_message_would_show() -> None:
    row = {"lines": ["RuntimeError: Numpy is not available"], "cause": ["libc.too-old"]}
    assert [verdict for _, verdict, _ in score_threads.score([row], MATRIX)] == ["wrong"]


def test_several_causes_of_one_message_are_an_open_answer_where_the_right_one_is_among_them() -> None:
    lines = ["RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle )`"]
    rows = [{"lines": lines, "cause": ["cuda.library-conflict"]}, {"lines": lines, "cause": ["pip.no-wheel"]}]
    assert [verdict for _, verdict, _ in score_threads.score(rows, MATRIX)] == ["open", "wrong"]
