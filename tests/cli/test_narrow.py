"""What is shown on a terminal keeps within it; what goes elsewhere does not depend on one."""

from __future__ import annotations

import io
import os

import pytest

from provision.cli.main import main
from provision.cli.output import Output
from provision.cli.screen import align

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


@pytest.mark.parametrize("columns", [None, 16])
def test_without_a_terminal_or_without_room_a_line_is_left_whole(columns: int | None) -> None:
    assert align(ROWS, columns=columns)[1] == f"first  {ROWS[1][1]}"


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
        ("matrix", "--framework", "driver"),
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
