"""One run at a time on a node, and what it was before the first change; real processes and locks below a folder."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import playbook_files
import pytest

SCRIPT = playbook_files.ROLES / "gpu_facts" / "files" / "node.py"
node = playbook_files.load_script(SCRIPT)
sender = playbook_files.load_filters("gpu_node")
FIRST = {"id": "first", "who": "ada@one", "pid": 11, "started": "1", "space": "one"}
SECOND = {"id": "second", "who": "bob@two", "pid": 22, "started": "1", "space": "two"}


def start(root: Path, run: Mapping[str, Any], do: str, **more: Any) -> subprocess.Popen[str]:
    """Send a request to the node as a run of Ansible does."""
    request = {"do": do, "root": str(root), "run": run, "over": [], "seen": None, "lock_seconds": 0, **more}
    text = base64.b64encode(json.dumps(request).encode()).decode()
    process = subprocess.Popen(
        [sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(f'REQUEST = "{text}"\n{SCRIPT.read_text()}')
    process.stdin.close()
    process.stdin = None
    return process


def ask(root: Path, run: Mapping[str, Any], do: str, **more: Any) -> tuple[int, str, str]:
    """Return exit status and both outputs of a request."""
    process = start(root, run, do, **more)
    said, complained = process.communicate(timeout=120)
    return process.returncode, said, complained


def work(root: Path) -> dict[str, Any]:
    return dict(node.read_work(node.Node(str(root))) or {})


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert path.exists()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program of the first run that is at work until a file `go on` is there."""
    assert ask(tmp_path, FIRST, "begin") == (0, "", "")
    script = f"touch {tmp_path}/at-work; while ! [ -e {tmp_path}/go-on ]; do sleep 0.05; done; exit 7"
    process = start(tmp_path, FIRST, "run", why="installing packages", argv=["sh", "-c", script])
    wait_for(tmp_path / "at-work")
    yield process
    (tmp_path / "go-on").touch()
    process.communicate(timeout=60)


def test_a_second_run_is_told_who_is_at_work_with_what_and_the_way_out(
    tmp_path: Path, busy: subprocess.Popen[str]
) -> None:
    status, said, complained = ask(tmp_path, SECOND, "begin")
    assert (status, said) == (75, "")
    assert complained.startswith("ada@one (process 11 there) is at work on this node for ")
    assert "installing packages" in complained
    process = json.loads((tmp_path / node.LOCK).read_text())["process"]
    assert f"process {process} on the node is what holds it" in complained
    assert "at-work" in Path(f"/proc/{process}/cmdline").read_text(), "it is the program, which may outlive its sender"
    assert work(tmp_path)["is_busy"]
    (tmp_path / "go-on").touch()
    assert busy.wait(60) == 7, "a step ends as its program does"


def test_between_two_steps_the_node_is_still_the_first_ones(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin")
    status, _, complained = ask(tmp_path, SECOND, "begin")
    assert status == 75
    assert "`rm /run/provision/lock`" in complained
    assert not work(tmp_path)["is_busy"]
    assert ask(tmp_path, FIRST, "run", why="x", argv=["true"])[0] == 0


def test_given_back_it_is_the_next_ones(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin")
    assert ask(tmp_path, FIRST, "end")[0] == 0
    assert work(tmp_path)["owner"] is None
    assert ask(tmp_path, SECOND, "begin", seen=work(tmp_path)["number"])[0] == 0


def test_run_that_looked_before_another_one_worked_is_refused(tmp_path: Path) -> None:
    seen = work(tmp_path).get("number", 0)
    ask(tmp_path, FIRST, "begin")
    ask(tmp_path, FIRST, "run", why="x", argv=["true"])
    ask(tmp_path, FIRST, "end")
    status, _, complained = ask(tmp_path, SECOND, "begin", seen=seen)
    assert status == 75
    assert "has worked on this node since this one looked at it" in complained
    assert ask(tmp_path, SECOND, "begin", seen=work(tmp_path)["number"])[0] == 0


def test_run_that_is_known_to_be_over_holds_nothing(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin")
    assert ask(tmp_path, SECOND, "begin", over=["first"])[0] == 0


def test_program_of_a_run_that_is_over_is_waited_for(tmp_path: Path, busy: subprocess.Popen[str]) -> None:
    assert ask(tmp_path, SECOND, "begin", over=["first"])[0] == 75, "nobody waits longer than it was said"
    second = start(tmp_path, SECOND, "begin", over=["first"], lock_seconds=60)
    time.sleep(0.5)
    assert second.poll() is None
    (tmp_path / "go-on").touch()
    second.communicate(timeout=60)
    assert second.returncode == 0


def test_run_that_has_sent_nothing_for_long_holds_nothing(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin")
    path = tmp_path / node.LOCK
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "at": record["at"] - node.LEASE_SECONDS - 1}))
    assert work(tmp_path)["owner"] is None
    assert ask(tmp_path, SECOND, "begin")[0] == 0


def test_run_that_lost_the_node_changes_and_restores_nothing_any_more(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin")
    ask(tmp_path, SECOND, "begin", over=["first"])
    for more in ({"do": "run", "why": "x", "argv": ["touch", str(tmp_path / "changed")]}, {"do": "restore"}):
        status, said, complained = ask(tmp_path, FIRST, **more)
        assert (status, said) == (75, "")
        assert "bob@two" in complained
    ask(tmp_path, SECOND, "end")
    status, _, complained = ask(tmp_path, FIRST, "run", why="x", argv=["touch", str(tmp_path / "changed")])
    assert status == 75
    assert "has worked on this node since" in complained
    assert not (tmp_path / "changed").exists()


def test_lock_lives_as_long_as_the_program_though_what_sent_it_was_killed(
    tmp_path: Path, busy: subprocess.Popen[str]
) -> None:
    busy.kill()
    busy.wait(60)
    assert work(tmp_path)["is_busy"]
    (tmp_path / "go-on").touch()
    end = time.monotonic() + 60
    while work(tmp_path)["is_busy"] and time.monotonic() < end:
        time.sleep(0.05)
    assert not work(tmp_path)["is_busy"]


def test_restart_of_the_system_in_the_middle_of_a_run_leaves_the_node_to_it(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin")
    (tmp_path / node.LOCK).unlink()
    assert ask(tmp_path, FIRST, "run", why="x", argv=["true"])[0] == 0


def test_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    status, _, complained = ask(tmp_path, FIRST, "run", why="x", argv=["no-such-program"])
    assert (status, complained.strip()) == (1, "no-such-program: No such file or directory")


def baseline(root: Path) -> dict[str, Any]:
    return dict(json.loads((root / node.BASELINE).read_text()))


def edit(root: Path, text: str) -> None:
    path = root / "etc/docker/daemon.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_the_node_was_is_written_down_again_until_a_run_has_changed_it(tmp_path: Path) -> None:
    edit(tmp_path, "{}")
    assert ask(tmp_path, FIRST, "begin", keeps_baseline=True)[1] == "/var/lib/provision/baseline/packages.json\n"
    assert oct((tmp_path / node.BASELINE).stat().st_mode & 0o777) == "0o600"
    assert not node.has_baseline(node.Node(str(tmp_path)))
    edit(tmp_path, '{"of": "the user"}')
    ask(tmp_path, FIRST, "begin", keeps_baseline=True)
    assert baseline(tmp_path)["texts"] == {"/etc/docker/daemon.json": '{"of": "the user"}'}
    ask(tmp_path, FIRST, "run", why="x", argv=["false"])
    edit(tmp_path, "{}")
    assert ask(tmp_path, FIRST, "begin", keeps_baseline=True)[1] == "", "a step may have changed something"
    assert baseline(tmp_path)["texts"] == {"/etc/docker/daemon.json": '{"of": "the user"}'}
    assert node.has_baseline(node.Node(str(tmp_path)))


def test_folders_of_a_first_run_that_failed_are_none_from_before(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin", keeps_baseline=True)
    before = baseline(tmp_path)["folders"]
    (tmp_path / "etc/provision").mkdir(parents=True)
    ask(tmp_path, FIRST, "begin", keeps_baseline=True)
    assert baseline(tmp_path)["folders"] == before
    assert "/etc/provision" not in before


@pytest.mark.parametrize("text", ['{"packages": {}}', "half a docu"], ids=["of a former release", "unreadable"])
def test_record_that_does_not_say_it_may_be_replaced_stands(tmp_path: Path, text: str) -> None:
    path = tmp_path / node.BASELINE
    path.parent.mkdir(parents=True)
    path.write_text(text)
    ask(tmp_path, FIRST, "begin", keeps_baseline=True)
    assert path.read_text() == text


def test_file_of_its_owner_that_is_written_settles_the_record(tmp_path: Path) -> None:
    ask(tmp_path, FIRST, "begin", keeps_baseline=True)
    for path, is_settled in (("/etc/apt/sources.list.d/provision.sources", False), ("/etc/docker/daemon.json", True)):
        item = {"path": path, "content": "{}", "mode": "0644", "owner": None, "group": None}
        assert ask(tmp_path, FIRST, "write", files=[item])[0] == 0
        assert node.has_baseline(node.Node(str(tmp_path))) is is_settled


def test_every_run_of_ansible_on_this_machine_has_a_name_and_is_known_to_be_over() -> None:
    own = sender.name_run()
    assert own["pid"] == os.getpid()
    assert not sender.is_over(own)
    with subprocess.Popen(["sleep", "60"]) as other:
        there = {**own, "id": "other", "pid": other.pid, "started": sender._started(other.pid)}
        assert not sender.is_over(there)
        other.kill()
    assert sender.is_over(there)
    assert not sender.is_over({**there, "space": "of another machine"})
    host = {"work": {"owner": there, "is_busy": True, "says": "words", "number": 3}}
    assert sender.find_other_run(host) == ""
    assert sender.has_orphan(host)
    host["work"]["owner"] = {**there, "space": "of another machine"}
    assert (sender.find_other_run(host), sender.has_orphan(host)) == ("words", False)
