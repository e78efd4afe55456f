"""The pages of `--help` fit the terminal, and their examples can be copied and work."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from provision.cli.parser import COMMANDS, Parser, build_parser


def _pages() -> list[tuple[str, ...]]:
    pages: list[tuple[str, ...]] = [()]
    for name in COMMANDS:
        pages.append((name,))
        for action in build_parser(name)._actions:
            if isinstance(action, argparse._SubParsersAction):
                pages += [(name, word) for word in action.choices]
    return pages


@pytest.mark.parametrize("words", _pages(), ids=" ".join)
def test_help_keeps_within_eighty_columns(provision, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    lines = provision(*words, "--help").out.splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_an_example_too_long_for_the_terminal_can_be_pasted_as_before(provision, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (wide,) = (line for line in provision("fleet", "spot", "--help").out.splitlines() if "--drain 'scon" in line)
    monkeypatch.setenv("COLUMNS", "60")
    narrow = provision("fleet", "spot", "--help").out.replace("\\\n", "")
    (folded,) = (line for line in narrow.splitlines() if "--drain 'scon" in line)
    assert shlex.split(folded) == shlex.split(wide)


def test_the_list_of_commands_goes_on_below_its_second_column(provision, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = provision("--help").out.splitlines()
    after = listed[next(row for row, line in enumerate(listed) if line.startswith("  fleet ")) + 1]
    assert len(after) - len(after.lstrip()) == 14


def test_words_too_many_for_the_usage_are_named_below_it(provision, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = provision("image", "--help").out
    assert "[--format FORMAT]" in page
    assert "\n  --format {dockerfile,apptainer," in page


def test_a_word_with_a_hyphen_stays_whole_in_the_help_of_a_flag(provision, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert (
        "vision-training" in provision("predict", "--help").out.partition("--model NAME  ")[0].partition("\nrun:\n")[2]
    )


def _examples(provision, monkeypatch, words: tuple[str, ...]) -> list[list[str]]:
    """Return the calls under "Examples:" of a page, each as its words without the program's name."""
    monkeypatch.setenv("COLUMNS", "500")
    page = provision(*words, "--help").out
    _, found, behind = page.partition("\nExamples:\n")
    assert found, page
    lines = [line.strip() for line in behind.partition("\n\n")[0].splitlines()]
    calls = [re.sub(r'^eval "\$\((.*)\)"$', r"\1", line).partition(" > ")[0] for line in lines]
    assert all(call.startswith(" ".join(("provision", *words))) for call in calls), lines
    return [shlex.split(call)[1:] for call in calls]


@pytest.mark.parametrize("words", _pages(), ids=" ".join)
def test_every_page_has_examples_that_the_program_understands(provision, monkeypatch, words):
    examples = _examples(provision, monkeypatch, words)
    assert examples
    for name, *others in examples:
        assert isinstance(parser := build_parser(name), Parser)
        assert parser.read(others or ["--json"])


_NEEDS_MORE = re.compile(r"host|--write|--check|--html|\.lock|\.csv|/provision")
"""Of an example that wants a machine, a file or a minute; the browser tests are about the page of `--html`."""


@pytest.mark.parametrize("name", ["resolve", "explain", "matrix", "plan", "predict"])
def test_examples_that_need_nothing_but_the_facts_get_an_answer_and_quiet_means_it(
    provision, monkeypatch, tmp_path, name
):
    monkeypatch.chdir(tmp_path)
    examples = [
        words for words in _examples(provision, monkeypatch, (name,)) if not _NEEDS_MORE.search(" ".join(words))
    ]
    assert len(examples) >= 2
    answers = {" ".join(words): provision(*words, "-q") for words in examples}
    assert {words: (answer.code, answer.err) for words, answer in answers.items()} == dict.fromkeys(answers, (0, ""))
