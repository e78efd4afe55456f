"""How role gpu_facts writes the first files of a role in one round trip, on a tree below a folder."""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import playbook_files
import pytest

SCRIPT = playbook_files.ROLES / "gpu_facts" / "files" / "node.py"
OWNER, GROUP = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name


def item(path: str, content: str = "text\n", **settings: str) -> dict[str, str]:
    return {"path": path, "content": content, "mode": "0644", "owner": OWNER, "group": GROUP, **settings}


def write(root: Path, *items: dict[str, str], umask: int = 0o077) -> subprocess.CompletedProcess[str]:
    """Run the program as the role does: request and text on standard input."""
    request = json.dumps({"do": "write", "root": str(root), "files": items})
    text = base64.b64encode(request.encode()).decode()
    return subprocess.run(
        [sys.executable, "-"],
        input=f'REQUEST = "{text}"\n{SCRIPT.read_text()}',
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
    )


def test_files_are_written_with_their_modes_and_the_folders_they_lack(tmp_path: Path) -> None:
    done = write(tmp_path, item("/etc/a/b/x", "é\n"), item("/etc/a/key", mode="0600"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["/etc/a/b/x", "/etc/a/key"]
    assert (tmp_path / "etc/a/b/x").read_text(encoding="utf-8") == "é\n"
    modes = {path.name: oct(path.stat().st_mode & 0o7777) for path in tmp_path.rglob("*")}
    assert modes == {"etc": "0o755", "a": "0o755", "b": "0o755", "x": "0o644", "key": "0o600"}


def test_what_is_there_already_is_left_and_not_named(tmp_path: Path) -> None:
    write(tmp_path, item("/x"), item("/y"))
    before = (tmp_path / "x").stat().st_mtime_ns
    (tmp_path / "y").chmod(0o600)
    done = write(tmp_path, item("/x"), item("/y"))
    assert done.stdout.split() == ["/y"]
    assert (tmp_path / "x").stat().st_mtime_ns == before


def test_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("theirs")
    (tmp_path / "x").symlink_to(tmp_path / "elsewhere")
    write(tmp_path, item("/x"))
    assert not (tmp_path / "x").is_symlink()
    assert (tmp_path / "elsewhere").read_text() == "theirs"


def test_file_that_cannot_be_written_is_named_and_nothing_is_left_beside(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    done = write(tmp_path, item("/x"))
    assert done.returncode == 1
    assert done.stderr.startswith("cannot write /x: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


@pytest.mark.parametrize("key", ["owner", "group"])
def test_unknown_account_is_named(tmp_path: Path, key: str) -> None:
    done = write(tmp_path, item("/x", **{key: "nobody-of-that-name"}))
    assert done.returncode == 1
    assert "nobody-of-that-name" in done.stderr
    assert not any(tmp_path.iterdir())
