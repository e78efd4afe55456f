"""Two runs over the same hosts do not change them at once."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from pathlib import Path

import pytest

from provision.errors import MissingDependencyError
from provision.node.hold import hold_hosts

HOSTS = ("hosts.yml", "limit None", "slice None")


def the_file(folder: Path) -> Path:
    """The lock's own file, while it is held or where it was left."""
    (found,) = folder.glob("*.lock")
    return found


def leave(folder: Path, content: bytes) -> Path:
    """A lock file as a killed process leaves it."""
    with hold_hosts(folder, HOSTS, "apply"):
        path = the_file(folder)
    folder.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_second_run_is_refused_with_what_the_first_is_and_who_runs_it(tmp_path: Path) -> None:
    with hold_hosts(tmp_path / "state", HOSTS, "apply"):
        with pytest.raises(MissingDependencyError) as refused, hold_hosts(tmp_path / "state", HOSTS, "remove"):
            pytest.fail("both run")
        assert refused.value.message == "another `provision node apply` is at work on these hosts"
        assert f"process {os.getpid()} on {platform.node()}" in refused.value.because[0]
        with hold_hosts(tmp_path / "state", ("others.yml",), "remove"):
            pass
    with hold_hosts(tmp_path / "state", HOSTS, "remove"):
        pass


@pytest.mark.parametrize("content", [b"", b"{}", b"rubbish", b'{"pid": 1, "host": "here", "since": "then"}'])
def test_lock_that_a_killed_process_left_blocks_nobody(tmp_path: Path, content: bytes) -> None:
    path = leave(tmp_path / "state", content)
    with hold_hosts(tmp_path / "state", HOSTS, "rollback"):
        row = json.loads(path.read_text())
        assert (row["pid"], row["action"]) == (os.getpid(), "rollback")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[1]", b'{"action": "x", "pid": "x"}'])
def test_holder_without_a_name_is_refused_all_the_same(tmp_path: Path, content: bytes) -> None:
    with hold_hosts(tmp_path, HOSTS, "apply"):
        the_file(tmp_path).write_bytes(content)
        with pytest.raises(MissingDependencyError) as refused, hold_hosts(tmp_path, HOSTS, "apply"):
            pytest.fail("both run")
        assert refused.value.message == "another run is at work on these hosts"
        assert refused.value.because[0].startswith("another process holds")


def test_lock_leaves_nothing_and_takes_nothing_else_away(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with hold_hosts(folder, HOSTS, "apply"):
        (folder / "node-1.json").write_text("{}")
    assert [path.name for path in folder.iterdir()] == ["node-1.json"]
    with hold_hosts(folder, HOSTS, "apply"):
        (folder / "node-1.json").unlink()
    assert list(tmp_path.iterdir()) == []


def test_lock_of_a_process_that_ends_meanwhile_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = leave(tmp_path / "state", b"")
    real, calls = fcntl.flock, []

    def flock(descriptor: int, words: int) -> None:
        # Between opening and locking the file, its holder ends and deletes it.
        if not calls:
            path.unlink()
        calls.append(descriptor)
        real(descriptor, words)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_hosts(tmp_path / "state", HOSTS, "apply"):
        assert len(calls) == 2
        assert path.exists()
