"""The pages of the rules are what the rules say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from rule_docs import FOLDER, rule_pages  # noqa: E402

PAGES = rule_pages()


@pytest.mark.parametrize("name", PAGES)
def test_page_is_fresh(name: str) -> None:
    path = ROOT / name
    assert path.is_file(), "run `make docs`"
    assert path.read_text(encoding="utf-8") == PAGES[name], "run `make docs`"


def test_no_page_is_left_of_a_rule_that_is_gone() -> None:
    assert {str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).iterdir()} == set(PAGES)


@pytest.mark.parametrize("name", [name for name in PAGES if not name.endswith("README.md")])
def test_page_shows_a_finding_of_its_rule_and_a_source(name: str) -> None:
    rule = Path(name).stem
    assert f"[{rule}] " in PAGES[name]
    assert "## Sources\n\n- " in PAGES[name]
