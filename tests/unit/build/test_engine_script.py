"""What tools/engine.sh decides, with stand-ins for every tool that it asks; it installs nothing here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "engine.sh"
ANSWERING = 'case "$*" in "version --format"*) echo "Docker 26";; *) exit 0;; esac'


@pytest.fixture
def run(tmp_path):
    """Run the script where only the named tools exist, each a line of shell."""

    def run(**tools: str) -> subprocess.CompletedProcess[str]:
        for name in ("sh", "timeout"):
            (tmp_path / name).symlink_to(str(shutil.which(name)))
        for name, line in tools.items():
            tool = tmp_path / name.replace("_", "-")
            tool.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls.log\n{line}\n')
            tool.chmod(0o755)
        return subprocess.run(
            ["/bin/sh", str(SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
        )

    return run


def test_an_engine_that_answers_is_left_alone(run, tmp_path):
    tools = ("mmdebstrap", "docker_registry", "sshd", "ssh", "busybox", "ldd", "skopeo")
    present = {"docker": ANSWERING, "grep": "exit 1", **dict.fromkeys(tools, ":")}
    done = run(id="echo 0", **present, apt_get="exit 1", dockerd="exit 1")
    assert done.returncode == 0, done.stderr
    assert "answers" in done.stderr
    calls = (tmp_path / "calls.log").read_text()
    assert "apt_get" not in calls
    assert "dockerd" not in calls


@pytest.mark.parametrize("tools", [{"id": "echo 1000", "apt_get": ":"}, {"id": "echo 0"}])
def test_without_root_or_apt_the_reason_and_the_way_out_are_given(run, tools):
    done = run(**tools)
    assert done.returncode == 7
    assert "takes root on Debian or Ubuntu" in done.stderr
    assert "sudo" in done.stderr
    assert done.stdout == ""


def test_an_engine_that_does_not_answer_counts_as_none(run):
    assert run(id="echo 1000", docker="exit 1").returncode == 7


def test_without_root_a_missing_base_maker_is_said_and_no_failure(run):
    done = run(id="echo 1000", docker=ANSWERING)
    assert done.returncode == 0
    assert "mmdebstrap" in done.stderr
    assert "busybox-static is absent" in done.stderr
    assert "skopeo is absent" in done.stderr


def test_an_engine_without_buildx_is_said_to_use_the_classic_builder(run):
    answering = 'case "$*" in buildx*) exit 1;; esac\n' + ANSWERING
    done = run(id="echo 1000", docker=answering)
    assert done.returncode == 0
    assert "classic builder" in done.stderr
