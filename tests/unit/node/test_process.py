"""Ansible is another program: it may die, hang, babble, and leave children behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provision.errors import MissingDependencyError
from provision.node import process
from provision.node.process import EVENTS_VARIABLE, run_process


def _run(script: str, **more: Callable[..., None]) -> tuple[int, list[str], list[str]]:
    events: list[str] = []
    lines: list[str] = []
    code = run_process(
        [sys.executable, "-c", script],
        environment=dict(os.environ),
        on_event=events.append,
        on_line=lines.append,
        **more,
    )
    return code, events, lines


EVENT = f"import os; os.write(int(os.environ['{EVENTS_VARIABLE}']), b'one\\ntwo'); "


def test_events_and_lines_come_apart_and_whole() -> None:
    code, events, lines = _run(EVENT + "print('said'); import sys; print('wrong', file=sys.stderr); sys.exit(4)")
    assert code == 4
    assert events == ["one", "two"]
    assert sorted(lines) == ["said", "wrong"]


def test_program_that_is_killed_says_so_by_its_status() -> None:
    code, events, _ = _run(EVENT + "os.kill(os.getpid(), 9)")
    assert code == -signal.SIGKILL
    assert events == ["one", "two"]


def test_program_that_is_absent_is_named() -> None:
    with pytest.raises(MissingDependencyError, match="/nowhere/ansible-playbook"):
        run_process(["/nowhere/ansible-playbook"], environment={}, on_event=print, on_line=print)


def test_bytes_that_are_no_text_do_not_stop_it() -> None:
    code, _, lines = _run("import os; os.write(1, b'\\xff\\xfe\\n' + b'x' * 100)")
    assert code == 0
    assert lines == ["\ufffd\ufffd", "x" * 100]


def test_line_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_LINE_BYTES_MAX", 1000)
    _, _, lines = _run("import os\nfor _ in range(200): os.write(1, b'x' * 1000)")
    assert len(lines) == 1
    assert len(lines[0]) <= 65536 + 1000


def test_child_that_keeps_the_streams_is_not_waited_for() -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    code, _, lines = _run(script)
    os.kill(int(lines[0]), signal.SIGKILL)
    assert code == 0


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


HANG = """
import os, signal, subprocess, sys, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
stubborn = 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)'
child = subprocess.Popen([sys.executable, '-c', stubborn], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


def test_program_that_ignores_every_signal_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_INTERRUPT_SECONDS", 0.2)
    monkeypatch.setattr(process, "_TERMINATE_SECONDS", 0.2)
    said: list[str] = []

    def interrupt(line: str) -> None:
        said.append(line)
        # As Ctrl-C does: in the main thread, while it waits.
        threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()

    with pytest.raises(KeyboardInterrupt):
        run_process([sys.executable, "-c", HANG], environment=dict(os.environ), on_event=print, on_line=interrupt)
    assert len(said) == 1
    for pid in map(int, said[0].split()):
        for _ in range(50):
            if not _is_running(pid):
                break
            time.sleep(0.1)
        assert not _is_running(pid)


def test_program_that_ends_when_asked_is_not_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\nprint('ready', flush=True)\n"
        f"try: time.sleep(600)\nexcept KeyboardInterrupt: open({str(tmp_path / 'tidy')!r}, 'w').close()"
    )
    with pytest.raises(KeyboardInterrupt):
        _run_interrupted(script)
    assert (tmp_path / "tidy").exists()


def _run_interrupted(script: str) -> None:
    def interrupt(_: str) -> None:
        threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()

    run_process([sys.executable, "-c", script], environment=dict(os.environ), on_event=print, on_line=interrupt)
