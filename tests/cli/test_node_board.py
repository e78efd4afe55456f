"""The table of hosts and roles that fills while a playbook runs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from provision.cli.node.board import NodeBoard
from provision.node.events import Run


def _draw(run: Run, names: list[str], monkeypatch: pytest.MonkeyPatch, *, width: int, height: int = 40) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    board = NodeBoard(run, names)
    monkeypatch.setattr(board, "_console", console)
    console.print(board.draw())
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _feed(run: Run, *events: dict[str, Any]) -> None:
    for event in events:
        run.take(json.dumps(event))


def _task(role: str, task: str = "Do it") -> dict[str, Any]:
    return {"event": "task", "task": task, "role": role}


def _result(host: str, role: str, status: str) -> dict[str, Any]:
    return {"event": "result", "host": host, "status": status, "task": "Do it", "role": role}


@pytest.fixture
def run() -> Run:
    run = Run(["a", "b", "c"])
    _feed(
        run,
        {"event": "start", "ansible": "0", "plays": ["make"]},
        {"event": "play", "number": 0, "name": "make"},
        _task("gpu_repos"),
        _result("a", "gpu_repos", "changed"),
        _result("b", "gpu_repos", "unreachable"),
        _task("gpu_driver", "Install the packages"),
        _result("a", "gpu_driver", "failed"),
    )
    return run


def test_wide_terminal_has_a_column_for_each_role(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _draw(run, ["a", "b", "c"], monkeypatch, width=100)
    assert lines[0].split() == ["host", "repos", "driver"]
    assert [line.split() for line in lines[1:4]] == [["a", "+", "!"], ["b", "?", "·"], ["c", "·", "·"]]
    assert "make · gpu_driver · Install the packages" in lines


def test_narrow_terminal_has_one_column_for_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _draw(run, ["a", "b", "c"], monkeypatch, width=24)
    assert lines[0].split() == ["host", "roles"]
    assert lines[1].split() == ["a", "+!"]


def test_hosts_with_trouble_stay_when_there_is_no_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(_draw(run, ["a", "b", "c"], monkeypatch, width=100, height=7))
    assert "and 1 more" in text
    assert "\na " in text
    assert "\nb " in text
    assert "\nc " not in text
