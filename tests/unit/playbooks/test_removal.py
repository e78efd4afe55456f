"""What a role takes away, run by the real ansible-playbook; nothing is asked of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible", reason="roles are run by ansible-core, which is not installed")

SOURCE = "nvidia-graphics-drivers"
PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - name: Take the driver away
      ansible.builtin.include_role: {name: gpu_driver, tasks_from: absent}
    - name: Say what would be purged
      ansible.builtin.copy:
        dest: "{{ said }}"
        content: "{{ {'purge': gpu_driver_present, 'kept': gpu_driver_kept} | to_json }}"
        mode: "0600"
"""


def take_away(folder: Path, removal: dict[str, list[str]]) -> dict[str, Any]:
    """Return what tasks/absent.yml of gpu_driver chose of two packages of a driver."""
    packages = {
        name: {"version": "535.1-1", "status": "ii", "source": SOURCE} for name in ("nvidia-kernel-dkms", "libcuda1")
    }
    host = {
        "packages": packages,
        "files": {},
        "links": {},
        "folders": {},
        "units": {"nvidia-persistenced.service": {"enabled": "enabled", "active": "active"}},
        "os": {"id": "debian12", "service_manager": "systemd"},
    }
    driver = {**playbook_files.make_driver(), "profiles": {}}
    values = {"gpu_facts_host": host, "gpu_facts_profile": {"driver": driver}, "gpu_repos_removal": removal}
    (folder / "play.yml").write_text(PLAY)
    (folder / "values.json").write_text(json.dumps({**values, "said": str(folder / "said.json")}))
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = {
        **os.environ,
        "ANSIBLE_FILTER_PLUGINS": str(playbook_files.PLAYBOOKS / "filter_plugins"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_ROLES_PATH": str(playbook_files.ROLES),
        "LC_ALL": "C.UTF-8",
    }
    words = [str(program), "-i", "localhost,", "-e", f"@{folder}/values.json"]
    words += ["-e", json.dumps({"ansible_python_interpreter": sys.executable}), str(folder / "play.yml")]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads((folder / "said.json").read_text()), "output": done.stdout}


def test_driver_from_before_is_neither_purged_nor_stopped(tmp_path: Path) -> None:
    found = take_away(tmp_path, {"purge": ["libnccl2"], "kept": ["libcuda1", "nvidia-kernel-dkms"]})
    assert found["purge"] == []
    assert found["kept"] == ["libcuda1", "nvidia-kernel-dkms"]
    assert "was there before the first run and stays: libcuda1 nvidia-kernel-dkms" in found["output"]
