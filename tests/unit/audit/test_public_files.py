"""Public install files, judged by hand before check was run over them: no error is false, and problems are found."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from provision.audit.rules import rule_ids
from provision.matrix.load import Matrix
from tools import score_files

MATRIX = Matrix()
ROWS = score_files.read_rows()
PAGE = Path(__file__).parents[3] / "docs" / "commands" / "check.md"
FOUND_MIN = {"dev": (120, 100), "held": (23, 8)}
"""How many problems of each part are found at least, as errors and as warnings."""


@pytest.fixture(scope="module")
def answers() -> score_files.Answers:
    return score_files.answers(score_files.PARTS, MATRIX)


@pytest.fixture(scope="module")
def counts(answers: score_files.Answers) -> dict[str, Counter[str]]:
    return {part: score_files.summary(part, answers) for part in score_files.PARTS}


def test_files_are_many_and_stand_at_a_commit() -> None:
    # Of files that were cut down to the lines that decide, the repository alone is known.
    address = re.compile(r"https://github\.com/([^/]+/[^/]+)(/blob/[0-9a-f]{40}/.+)?")
    places = [address.fullmatch(row["address"]) for row in ROWS]
    assert all(places)
    assert sum(place[2] is None for place in places if place) <= 35
    assert len(ROWS) >= 170
    assert len({place[1] for place in places if place}) >= 100
    assert all(row["check"] in row["files"] for row in ROWS)


def test_parts_share_no_repository() -> None:
    parts = {
        part: {"/".join(row["address"].split("/")[3:5]).lower() for row in ROWS if score_files.part_of(row) == part}
        for part in score_files.PARTS
    }
    assert not parts["dev"] & parts["held"]
    assert len(parts["held"]) >= 60


def test_problems_say_where_they_are_and_how_they_are_known() -> None:
    known = 0
    for row in ROWS:
        lines = [line for text in row["files"].values() for line in text]
        for problem in row["truth"]:
            assert problem["severity"] in ("error", "warning")
            assert problem["family"] in score_files.FAMILIES
            assert any(words in line for words in problem["where"] for line in lines), row["address"]
            assert ("known" in problem) >= (problem["how"] in ("thread", "commit"))
            known += "known" in problem
    assert known >= 50


def test_families_name_rules_that_exist() -> None:
    named = {rule for rules in score_files.FAMILIES.values() for rule in rules}
    assert named - {score_files.UNREAD} <= set(rule_ids(MATRIX))


@pytest.mark.parametrize("part", score_files.PARTS)
def test_no_error_is_false(part: str, answers: score_files.Answers) -> None:
    false = [
        (row["address"], item.rule, item.message)
        for row, said in answers
        if score_files.part_of(row) == part
        for item in score_files.false_errors(row, said)
    ]
    assert false == []


@pytest.mark.parametrize("part", score_files.PARTS)
def test_problems_are_found(part: str, counts: dict[str, Counter[str]]) -> None:
    errors, warnings = FOUND_MIN[part]
    assert counts[part]["error"] >= errors
    assert counts[part]["error"] + counts[part]["warning"] >= errors + warnings


@pytest.mark.parametrize("part", score_files.PARTS)
def test_page_tells_the_score(part: str, counts: dict[str, Counter[str]]) -> None:
    told = re.search(rf"^\| {part}((?: \| \d+)+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert told is not None
    row = counts[part]
    wanted = (row["cases"], row["errors"], row["false errors"], row["error"], row["warning"], row["missed"])
    assert tuple(map(int, re.findall(r"\d+", told[1]))) == wanted


def test_one_false_error_would_show() -> None:
    row = {"check": "requirements.txt", "files": {"requirements.txt": ["torch==2.5.1", "torchvision==0.19.0"]}}
    said = score_files.answer(row, MATRIX)
    assert [item.rule for item in score_files.false_errors({**row, "truth": []}, said)] == ["C03"]
    problem = {"family": "pair", "where": ["torchvision==0.19.0"]}
    assert score_files.false_errors({**row, "truth": [problem]}, said) == ()
    assert score_files.found(problem, said) == "error"
    assert score_files.found({"family": "tag", "where": ["torchvision==0.19.0"]}, said) == "missed"
