"""The runner of `make test`: what it prints in which order, that any failure fails it, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GATE = Path(__file__).resolve().parents[3] / "tools" / "gate.py"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, GATE, *words], capture_output=True, text=True, check=False)


def test_the_last_command_runs_beside_the_others_and_is_shown_behind_them(tmp_path: Path) -> None:
    # Each waits for the other, so that neither could end if they ran one after the other.
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.05; done; echo {0}"
    last = ["sh", "-c", meet.format("tests", "lint")]
    done = subprocess.run(
        [sys.executable, GATE, meet.format("lint", "tests"), "echo more", "--", *last],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["lint", "more", "tests"], "")


@pytest.mark.parametrize(
    ("first", "second", "last", "named"),
    [
        pytest.param(3, 0, 0, "`exit 3` ended with 3", id="first"),
        pytest.param(0, 4, 0, "`exit 4` ended with 4", id="second"),
        pytest.param(0, 0, 5, "`sh -c 'exit 5'` ended with 5", id="last"),
        pytest.param(3, 4, 0, "`exit 3` ended with 3, `exit 4` ended with 4", id="two"),
    ],
)
def test_one_that_fails_fails_the_whole_and_is_named(first: int, second: int, last: int, named: str) -> None:
    done = run(f"exit {first}", f"exit {second}", "--", "sh", "-c", f"exit {last}")
    assert (done.returncode, done.stderr) == (1, f"failed: {named}\n")


def test_one_that_a_signal_ended_fails_the_whole() -> None:
    assert run("true", "--", "sh", "-c", "kill -9 $$").returncode == 1
    assert run("kill -9 $$", "--", "true").returncode == 1


def test_what_is_said_while_the_others_run_is_not_lost() -> None:
    done = run("sleep 0.3", "--", sys.executable, "-c", "print('x' * 1_000_000); print('end')")
    assert (len(done.stdout), done.stdout[-4:]) == (1_000_005, "end\n")


@pytest.mark.parametrize("words", [(), ("true",), ("true", "--")])
def test_a_call_without_a_last_command_is_refused(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: gate.py ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_still_runs_is_given_time_to_tidy_up(tmp_path: Path, number: signal.Signals) -> None:
    """As a time limit or Ctrl-C ends it: also what the commands started is told."""
    child = (
        "import pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1], 'begun').touch()\n"
        "try: time.sleep(600)\n"
        "except KeyboardInterrupt: print('tidied', sys.argv[1], flush=True)\n"
    )
    (tmp_path / "child.py").write_text(child)
    for name in ("line", "last"):
        (tmp_path / name).mkdir()
    start = f"{sys.executable} child.py"
    process = subprocess.Popen(
        [sys.executable, GATE, f"{start} line; true", "--", "sh", "-c", f"{start} last; true"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not all((tmp_path / name / "begun").exists() for name in ("line", "last")):
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, sorted(out.splitlines())) == (130, ["tidied last", "tidied line"])
