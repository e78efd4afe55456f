"""The comparison with other tools says nothing of them that was not run here or read at an address."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
TEXT, _, SOURCES = PAGE.partition("## Sources")
MARK = re.compile(r"\[(\d+)\]|\*run\*")


def rows() -> list[list[str]]:
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_cell_about_another_tool_says_where_it_is_from() -> None:
    cells = [cell for row in rows() if row[0] for cell in row[2:] if cell]
    assert len(cells) > 20
    assert [cell for cell in cells if not MARK.search(cell)] == []


def test_every_reason_to_take_another_tool_says_where_it_is_from() -> None:
    section = TEXT.split("## Where others are the better choice")[1]
    reasons = section.split("\n- ")[1:]
    assert len(reasons) >= 5
    # What is plain without a source: an image that exists can be pulled.
    assert [reason for reason in reasons if not MARK.search(reason) and "docker pull" not in reason] == []


def test_every_source_has_an_address_and_is_named() -> None:
    listed = dict(re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", SOURCES, re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"\[(\d+)\]", TEXT)) == set(listed)
    assert [number for number, source in listed.items() if "<https://" not in source] == []
    assert re.search(r"read on 20\d\d-\d\d-\d\d", SOURCES)


def test_no_tool_is_called_better_without_a_figure_or_a_source() -> None:
    prose = [part for part in re.split(r"\n\n|\n- ", TEXT) if not part.startswith(("#", "|"))]
    praise = [part for part in prose[1:] if re.search(r"\b(faste[rs]t?|smalle[rs]t?|better|best|only)\b", part)]
    assert praise
    assert [part for part in praise if not (MARK.search(part) or "](measurements.md#" in part)] == []
