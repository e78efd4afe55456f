"""The pages of the rules are what the rules say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from rule_docs import FOLDER, rule_pages  # noqa: E402

from provision.audit.rules import rule_ids  # noqa: E402
from provision.matrix.load import Matrix  # noqa: E402

RULES = rule_ids(Matrix())


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Each page by its name; every example of every rule is audited for them."""
    return rule_pages()


@pytest.mark.parametrize("name", ["README", *RULES])
def test_page_is_fresh(name: str, pages: dict[str, str]) -> None:
    path = ROOT / FOLDER / f"{name}.md"
    assert path.is_file(), "run `make docs`"
    assert path.read_text(encoding="utf-8") == pages[f"{FOLDER}/{name}.md"], "run `make docs`"


def test_no_page_is_left_of_a_rule_that_is_gone(pages: dict[str, str]) -> None:
    assert {str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).iterdir()} == set(pages)
    assert set(pages) == {f"{FOLDER}/{name}.md" for name in ("README", *RULES)}


@pytest.mark.parametrize("rule", RULES)
def test_page_shows_a_finding_of_its_rule_and_a_source(rule: str, pages: dict[str, str]) -> None:
    page = pages[f"{FOLDER}/{rule}.md"]
    assert f"[{rule}] " in page
    assert "## Sources\n\n- " in page
