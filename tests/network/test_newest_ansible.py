"""The newest ansible-core: plays and roles parse, and a play without a node converges.

It wants a newer Python than the oldest this project runs on, and comes from the package index: skipped, with the
reason, where one of them is missing. `tools/molecule.py --ansible-core newest` runs whole scenarios with it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = ROOT / "playbooks"
_SPEC = importlib.util.spec_from_file_location("molecule_runner", ROOT / "tools" / "molecule.py")
runner = importlib.util.module_from_spec(_SPEC)
sys.modules["molecule_runner"] = runner
_SPEC.loader.exec_module(runner)
CONVERGE = """\
---
- name: Read this machine with the newest ansible-core
  hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  roles:
    - role: gpu_facts
  tasks:
    - name: Show that every filter of the plays takes what the role found
      ansible.builtin.assert:
        that:
          - gpu_facts_host.schema == 1
          - "'dpkg-that-nobody-has' in ([{'name': 'dpkg-that-nobody-has'}] | gpu_missing(gpu_facts_host) | gpu_specs)"
          - "([{'path': '/etc/provision/none', 'content': 'x'}] | gpu_drifted(gpu_facts_host)) | length == 1"
          - "not ('no-such.service' | gpu_unit(gpu_facts_host)).exists"
"""


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the newest ansible-core."""
    try:
        python = runner.find_python()
    except runner.MissingError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("newest") / "venv"
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    make = [uv, "venv", "--quiet", "--python", python, folder] if uv else [python, "-m", "venv", folder]
    subprocess.run(make, check=True, capture_output=True)
    words = (
        [uv, "pip", "install", "--quiet", "--python", folder / "bin/python"]
        if uv
        else [folder / "bin/python", "-m", "pip", "install", "--quiet"]
    )
    done = subprocess.run([*words, "ansible-core"], check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"the package index does not give the newest ansible-core: {done.stderr.strip().splitlines()[-1:]}")
    return folder / "bin"


def run(newest: Path, folder: Path, *words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    environment = {**clean, "PATH": f"{newest}:{clean['PATH']}", "HOME": str(folder), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        [newest / words[0], *words[1:]],
        cwd=cwd or folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_it_is_newer_than_the_oldest_supported(newest: Path, tmp_path: Path) -> None:
    said = run(newest, tmp_path, "ansible", "--version").stdout
    version = said.split("core ")[1].split("]")[0]
    assert tuple(map(int, version.split(".")[:2])) >= (2, 20), version


@pytest.mark.parametrize("play", sorted(PLAYBOOKS.glob("gpu-node*.yml")), ids=lambda path: path.name)
def test_play_parses_without_a_warning(newest: Path, tmp_path: Path, play: Path) -> None:
    done = run(newest, tmp_path, "ansible-playbook", "--syntax-check", "-i", PLAYBOOKS / "inventory/single", play)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    assert "DEPRECATED" not in done.stderr, done.stderr


def test_facts_and_filters_run(newest: Path, tmp_path: Path) -> None:
    # The roles are found beside a play, so the play has to lie beside them.
    site = tmp_path / "site"
    shutil.copytree(PLAYBOOKS, site, ignore=shutil.ignore_patterns("group_vars", "inventory", "__pycache__"))
    (site / "converge.yml").write_text(CONVERGE)
    done = run(newest, tmp_path, "ansible-playbook", "-i", "localhost,", site / "converge.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    assert "DEPRECATED" not in done.stderr, done.stderr
