"""What is shown on a terminal keeps within it; what goes elsewhere does not depend on one."""

from __future__ import annotations

import io
import os

import pytest

from provision.cli.main import main
from provision.cli.output import Output
from provision.cli.text.screen import align

ROWS = [("name", "does"), ("first", "a sentence that is much too long for the terminal that shows it")]


class Terminal(io.StringIO):
    """Stands in for a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def show_on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Have the standard output be a terminal of 80 columns, until the test ends."""
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 24)))
    shown = Terminal()
    monkeypatch.setattr("sys.stdout", shown)
    return shown


def test_the_last_cell_goes_on_below_itself() -> None:
    lines = align(ROWS, indent="  ", columns=42)
    assert lines[:2] == ["  name   does", "  first  a sentence that is much too long"]
    assert all(line.startswith(" " * 9) for line in lines[2:])
    assert " ".join(" ".join(lines[1:]).split()) == f"first {ROWS[1][1]}"


def test_without_a_terminal_a_line_is_left_whole() -> None:
    assert align(ROWS)[1] == f"first  {ROWS[1][1]}"


def test_without_room_for_a_word_a_line_is_left_whole() -> None:
    assert align(ROWS, columns=14)[-1].strip() == ROWS[1][1]


WIDE = [
    ("image", "CUDA", "platform", "lifecycle"),
    ("python:slim", "", "amd64", ""),
    ("nvidia/cuda", "13.2", "amd64 arm64", "unlisted"),
    ("debian:slim", "", "", ""),
]


def test_columns_that_have_no_room_beside_the_others_stand_below_them_aligned() -> None:
    assert align(WIDE, columns=29) == [
        "image        CUDA",
        "    platform     lifecycle",
        "python:slim",
        "    amd64",
        "nvidia/cuda  13.2",
        "    amd64 arm64  unlisted",
        "debian:slim",
    ]
    assert align(WIDE, columns=41) == align(WIDE)
    assert len(align(WIDE, columns=40)) == 6


def test_a_last_cell_whose_longest_word_has_no_room_goes_below_the_row() -> None:
    rows = [("llama-3.1-8b", "8.03b", "llama-3.1-8b-instruct, meta-llama/Llama-3.1-8B-Instruct")]
    assert align(rows, columns=44) == [
        "llama-3.1-8b  8.03b",
        "    llama-3.1-8b-instruct,",
        "    meta-llama/Llama-3.1-8B-Instruct",
    ]


def test_a_table_without_rows_is_nothing() -> None:
    assert align([], columns=80) == []


def test_the_width_is_that_of_the_terminal_which_shows_the_result(monkeypatch, tmp_path) -> None:
    terminal = show_on_terminal(monkeypatch)
    output = Output()
    assert output.terminal_columns() == 80
    assert output.terminal_columns(io.StringIO()) is None
    output.target = tmp_path / "result.txt"
    assert output.terminal_columns() is None
    assert output.terminal_columns(terminal) == 80
    assert Output(is_json=True).terminal_columns() is None


@pytest.mark.parametrize(
    "words",
    [
        *(("matrix", "--framework", kind) for kind in ("torch", "tensorflow", "jax", "cuda", "driver", "gpu", "image")),
        ("plan", "--list-models"),
        ("verify", "--list"),
        ("resolve", "--torch", "2.8", "--gpu", "l40s"),
        ("probe", "--list"),
    ],
    ids=" ".join,
)
def test_a_table_folds_in_a_terminal_and_nowhere_else(monkeypatch, words) -> None:
    terminal = show_on_terminal(monkeypatch)
    assert main([*words]) == 0
    # The first line of a stack is a list of names, which has no column to go on below.
    lines = terminal.getvalue().splitlines()[words[0] == "resolve" :]
    assert max(map(len, lines)) <= 80
