"""Role gpu_facts writes a secret file without Ansible showing its content; this machine stands in for the node."""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import playbook_files
import pytest

PROGRAM = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
SECRET = "correct-horse"  # Not a password of anything.

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="ansible-core is not installed")


def write(folder: Path, *flags: str, validate: str = "") -> subprocess.CompletedProcess[str]:
    """Have the role write one plain file and one secret file with a line break at its end."""
    common = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}
    files = [
        {"path": f"{folder}/plain", "content": "seen\n", **common},
        {"path": f"{folder}/key", "content": f"{SECRET}\n", "is_secret": True, "validate": validate, **common},
    ]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [
            {
                "ansible.builtin.include_role": {"name": "gpu_facts", "tasks_from": "write"},
                "vars": {
                    "gpu_facts_host": {"files": {}, "links": {}, "folders": {}, "generations": []},
                    "gpu_facts_write": files,
                },
            }
        ],
    }
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    assert PROGRAM is not None
    return subprocess.run(
        [PROGRAM, "-i", "localhost,", folder / "play.yml", *flags],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "ANSIBLE_ROLES_PATH": str(playbook_files.ROLES),
            "ANSIBLE_FILTER_PLUGINS": str(playbook_files.ROLES.parent / "filter_plugins"),
        },
    )


def assert_hidden(done: subprocess.CompletedProcess[str]) -> None:
    """The secret was shown neither as it is nor within the request, which holds it in base64."""
    said = done.stdout + done.stderr
    assert SECRET not in said
    # A word may be a path, or begin with one: what is decoded starts at each of the four places that a group can.
    for word in re.findall(r"[A-Za-z0-9+/]{40,}", said):
        for start in range(4):
            part = word[start:]
            assert SECRET.encode() not in base64.b64decode(part[: len(part) // 4 * 4])


@pytest.mark.parametrize("flags", [("-v", "--diff"), ("-vvv",)])
def test_secret_is_written_and_not_shown(tmp_path: Path, flags: tuple[str, ...]) -> None:
    done = write(tmp_path, *flags)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "key").read_text(encoding="utf-8") == f"{SECRET}\n"
    assert f"{tmp_path}/key" in done.stdout
    assert_hidden(done)


def test_failure_of_a_secret_file_is_named_and_its_content_is_not(tmp_path: Path) -> None:
    done = write(tmp_path, "-v", validate="false %s")
    assert done.returncode == 2
    assert f"{tmp_path}/key" in done.stdout
    assert "failed to validate" in done.stdout + done.stderr
    assert_hidden(done)
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize("flags", [("-v",), ("-vvv",)])
def test_secret_file_that_cannot_be_written_first_is_named_with_the_reason(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "key").mkdir()
    done = write(tmp_path, *flags)
    assert done.returncode == 2
    assert f"cannot write {tmp_path}/key: " in done.stdout + done.stderr
    assert_hidden(done)
