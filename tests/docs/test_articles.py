"""The page of the articles leaves none of their subjects out, names its sources, and its commands work."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "articles.md").read_text(encoding="utf-8")
TEXT, _, SOURCES = PAGE.partition("## Sources")
_SPEC = importlib.util.spec_from_file_location("console_of_articles", ROOT / "tools" / "console.py")
console = importlib.util.module_from_spec(_SPEC)
sys.modules["console_of_articles"] = console
_SPEC.loader.exec_module(console)

# How many capabilities and numbers each of the five articles has.
SUBJECTS = {1: 26, 2: 27, 3: 12, 4: 13, 5: 13}
WITHOUT_SOURCE = ("right", "arithmetic", "no source is named", "names no source", "none names a source", "not checked")
CALL = re.compile(r"`(provision [^`]+)`(?: → (\d))?")


def rows() -> list[list[str]]:
    """Subjects, the article, what holds, and what the project does, of every row."""
    lines = [line for line in TEXT.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def calls() -> list[tuple[str, int]]:
    """Every command outside the examples, with the exit code that stands behind it."""
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    return sorted({(command, int(code or 0)) for command, code in CALL.findall(prose)})


def setting() -> str:
    """The files and stand-in machines of the page, without its examples."""
    return re.sub(r"^```console\n.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_every_subject_of_the_articles_has_one_row() -> None:
    named = [subject for row in rows() for subject in row[0].split(", ")]
    expected = [f"{article}.{number}" for article, count in SUBJECTS.items() for number in range(1, count + 1)]
    assert sorted(named) == sorted(expected)


def test_every_row_is_whole_and_says_what_the_project_does() -> None:
    assert [row[0] for row in rows() if len(row) != 4 or not all(row)] == []
    assert [row[0] for row in rows() if not re.search(r"`provision |\]\(|Not done: ", row[3])] == []


def test_every_correction_names_its_source() -> None:
    bare = [
        row[0]
        for row in rows()
        if not re.search(r"\[\d+\]", row[2])
        and not CALL.search(row[3])
        and not any(word in row[2] for word in WITHOUT_SOURCE)
    ]
    assert bare == ["2.17"], "what was not found has no source; everything else needs one"


def test_every_source_has_an_address_and_is_named() -> None:
    listed = dict(re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", SOURCES, re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"\[(\d+)\]", TEXT)) == set(listed)
    assert [number for number, source in listed.items() if "<https://" not in source] == []


def test_known_errors_are_corrected() -> None:
    """The errors that are passed on most, and a word of what holds instead."""
    corrected = {
        "535.154.02": "535.154.05",
        "nvlink-smi": "nvidia-smi nvlink -s",
        "apps/v1`, `kind": "autoscaling/v2",
        "$3.696": "$21.957642",
        "112 vCPU": "80 vCPU",
        "port 12345": "ephemeral",
    }
    text = {wrong: [row[2] for row in rows() if wrong in row[1]] for wrong in corrected}
    assert {wrong: len(found) for wrong, found in text.items()} == dict.fromkeys(corrected, 1)
    assert [wrong for wrong, right in corrected.items() if right not in text[wrong][0]] == []


@pytest.mark.parametrize(("command", "code"), calls(), ids=str)
def test_command_ends_as_the_page_says(command: str, code: int) -> None:
    session = f"$ {command}\n...\n" + (f"$ echo $?\n{code}\n" if code else "")
    text = f"{setting()}\n```console\n{session}```\n"
    assert console.replay(text) == text
