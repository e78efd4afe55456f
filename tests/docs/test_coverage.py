"""Nothing of the interface is without a page: commands, flags, rules, checks, diagnoses, exit codes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision import errors
from provision.cli.parser import COMMANDS, build_parser
from provision.matrix.check import RULES
from provision.matrix.load import Matrix

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SHARED = (DOCS / "commands" / "README.md").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (DOCS / "commands" / f"{name}.md").read_text(encoding="utf-8")


def parsers(name: str) -> Iterator[argparse.ArgumentParser]:
    """The parser of a command and those of its actions."""
    parser = build_parser(name)
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                if hasattr(inner, "fill"):
                    inner.fill()
                yield inner


def shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The words of a parser that its help shows."""
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]


def documented_flags(text: str) -> set[str]:
    """The flags that the tables of a page list."""
    cells = re.findall(r"^\| `(-[^`]*)` \| \S", text, re.MULTILINE)
    return {word.split()[0] for cell in cells for word in cell.split(", ")}


@pytest.mark.parametrize("name", COMMANDS)
class TestCommand:
    def test_has_a_page_that_the_list_leads_to(self, name: str) -> None:
        assert page(name).splitlines()[1] == f"# provision {name}"
        assert f"]({name}.md)" in SHARED

    def test_every_flag_is_on_its_page_or_in_the_list_and_says_what_it_does(self, name: str) -> None:
        known = documented_flags(page(name)) | documented_flags(SHARED)
        flags = {flag for parser in parsers(name) for action in shown(parser) for flag in action.option_strings}
        assert flags
        assert sorted(flags - known) == []

    def test_every_action_is_on_its_page(self, name: str) -> None:
        calls = [parser.prog for parser in parsers(name)]
        assert [call for call in calls if call not in page(name)] == []

    def test_every_choice_of_a_word_is_on_its_page(self, name: str) -> None:
        text = page(name) + SHARED
        words = {
            str(choice) for parser in parsers(name) for action in shown(parser) for choice in (action.choices or ())
        }
        assert [word for word in sorted(words) if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)] == []

    def test_has_an_example_that_is_run(self, name: str) -> None:
        examples = page(name).split("## Examples")[1].split("<!-- generated: flags -->")[0]
        assert f"$ provision {name} " in examples


def test_every_page_of_a_command_has_one() -> None:
    assert {path.stem for path in (DOCS / "commands").glob("*.md")} == {*COMMANDS, "README"}


def test_every_exit_code_is_in_the_list_with_its_meaning() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    codes = {0, errors.EXIT_INTERRUPTED, *(kind.exit_code for kind in kinds)}
    assert {int(code) for code in re.findall(r"^\| (\d+) \| \S", SHARED, re.MULTILINE)} == codes


def test_every_rule_of_the_facts_is_on_the_page_of_data() -> None:
    assert set(re.findall(r"^\| (D\d+) \| \S", page("data"), re.MULTILINE)) == set(RULES)


def test_every_check_and_every_diagnosis_has_a_runbook() -> None:
    headings = set(re.findall(r"^### (\S+)$", (DOCS / "runbooks.md").read_text(encoding="utf-8"), re.MULTILINE))
    matrix = Matrix()
    assert sorted((set(matrix.checks) | set(matrix.diagnoses)) - headings) == []


def test_every_rule_of_check_has_a_page() -> None:
    rules = {rule.lower() for rule in Matrix().audit_rules}
    assert rules
    assert {path.stem.lower() for path in (DOCS / "rules").glob("*.md")} - {"readme"} == rules


def test_the_index_leads_to_every_page() -> None:
    """A page that nothing leads to is not found by anybody."""
    reached: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached or path.suffix != ".md" or not path.is_file():
            continue
        reached.add(path)
        links = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
        waiting += [(path.parent / link).resolve() for link in links if "://" not in link]
    assert sorted(str(path.relative_to(ROOT)) for path in set(DOCS.rglob("*.md")) - reached) == []
