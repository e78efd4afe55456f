"""The checks as pytest tests over a running container, with a real engine."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("testinfra", reason="pytest-testinfra is needed (`pip install 'gpu-provision[verify]'`)")

ROOT = Path(__file__).resolve().parents[2]
NAME = "provision-test-testinfra"


def _docker(*words: str, check: bool = True) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=check, timeout=60).stdout.strip()


@pytest.fixture
def container(python_base):
    _docker("rm", "--force", NAME, check=False)
    _docker("run", "--detach", "--rm", "--name", NAME, "--network", "none", "--entrypoint", "sleep", python_base, "600")
    yield NAME
    with contextlib.suppress(subprocess.SubprocessError):
        _docker("rm", "--force", NAME)


def _verify(folder: Path, *targets: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Return how it ended, and the name of each test → its outcome."""
    report = folder / "cases.xml"
    words = ("verify", "--pytest", "--gpus", "0", "--junit", str(report), *targets)
    done = subprocess.run(
        [sys.executable, "-m", "provision", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    cases = ET.parse(report).getroot().iter("testcase")
    return done, {
        case.get("name"): next((child.tag for child in case if child.tag != "properties"), "passed") for case in cases
    }


def test_a_container_is_verified_and_one_that_is_gone_fails_alone(container, tmp_path):
    done, cases = _verify(tmp_path, f"docker://{container}", "docker://provision-test-none")
    assert done.returncode == 6, done.stdout + done.stderr
    # What concerns the host is skipped in a container; what was not there could not be looked at.
    assert cases[f"test_host_kernel_running[docker://{container}]"] == "skipped"
    assert cases["test_host_kernel_running[docker://provision-test-none]"] == "error"
    assert "failure" not in {tag for name, tag in cases.items() if "none" in name}
    assert "error" not in {tag for name, tag in cases.items() if container in name}
    assert "No such container" in done.stdout


def test_an_image_without_gzip_is_asked_all_the_same(container, tmp_path):
    _docker("exec", container, "rm", "/usr/bin/gzip", "/usr/bin/base64")
    done, cases = _verify(tmp_path, f"docker://{container}")
    assert cases[f"test_host_kernel_running[docker://{container}]"] == "skipped"
    assert "nothing could be collected" not in done.stdout
