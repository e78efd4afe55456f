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
    return run(folder, PLAY, values)


def run(folder: Path, play: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return what a play wrote into the file `said`, and its output."""
    (folder / "play.yml").write_text(play)
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


DOCKER = """
- hosts: localhost
  gather_facts: false
  connection: local
  roles: []
  vars_files: ["{{ toolkit }}/defaults/main.yml", "{{ toolkit }}/vars/main.yml"]
  tasks:
    - name: Merge
      ansible.builtin.set_fact:
        merged: "{{ gpu_facts_host.files['/etc/docker/daemon.json'].text | gpu_merge_json(changes) }}"
    - name: Let the node have what was merged
      ansible.builtin.set_fact:
        gpu_facts_host: "{{ gpu_facts_host | combine({'files': {'/etc/docker/daemon.json':
          gpu_facts_host.files['/etc/docker/daemon.json'] | combine({'text': merged})}}) }}"
    - name: Plan what is taken back
      ansible.builtin.set_fact:
        gpu_container_toolkit_undo: "{{ gpu_facts_host | gpu_engine_undo(gpu_container_toolkit_originals) }}"
    - name: Say it
      ansible.builtin.copy:
        dest: "{{ said }}"
        content: "{{ gpu_container_toolkit_docker_before | first | to_json }}"
        mode: "0600"
"""


@pytest.mark.parametrize(
    ("text", "is_known", "state", "content"),
    [
        ('{"log-driver": "local"}', True, "present", '{"log-driver": "local"}'),
        ('{"log-driver": "local"}', False, "present", '{\n    "log-driver": "local"\n}\n'),
        ("{}\n", True, "present", "{}\n"),
        ("{}\n", False, "absent", None),
    ],
    ids=["record", "no record", "empty with record", "empty without"],
)
def test_docker_gets_back_what_the_record_says(
    tmp_path: Path, text: str, is_known: bool, state: str, content: str | None
) -> None:
    path = "/etc/docker/daemon.json"
    row = {"text": text, "mode": "0600", "owner": "root", "group": "docker"}
    host = {"files": {path: row}, "links": {}, "folders": {}}
    changes = {"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}, "features": {"cdi": True}}
    baseline = {"packages": {}, "texts": {path: text} if is_known else {}}
    values = {
        "gpu_repos_baseline": baseline,
        "changes": changes,
        "toolkit": str(playbook_files.ROLES / "gpu_container_toolkit"),
    }
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.json").write_text(json.dumps({"gpu_facts_host": host}))
    found = run(tmp_path, DOCKER, values)
    assert found["state"] == state
    assert (found["mode"], found["group"]) == ("0600", "docker")
    if content is not None:
        assert found["content"] == content
    # What was there before is not a file of ours to judge.
    assert (found["validate"] == "") is (is_known)


FORMER = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - name: Put former versions back
      ansible.builtin.include_role: {name: gpu_repos, tasks_from: former}
    - name: Say what was run
      ansible.builtin.copy:
        dest: "{{ said }}"
        content: "{{ {'ran': lookup('ansible.builtin.file', calls).splitlines()} | to_json }}"
        mode: "0600"
"""
APT = """#!/bin/sh
echo "$@" >>{calls}
case "$*" in *--simulate*) echo '{plan}'; exit {simulated} ;; esac
echo 'E: Sub-process /usr/bin/dpkg returned an error code (1)' >&2
exit {installed}
"""
GOOD = "Inst nvidia-container-toolkit [1.19.1-1] (1.17.0-1 Site:1 [amd64])"


@pytest.mark.parametrize(
    ("plan", "simulated", "installed", "runs", "told"),
    [
        (GOOD, 0, 0, 2, "libcuda1=535.1-1"),
        (GOOD, 0, 100, 2, "libcuda1=535.1-1 nvidia-container-toolkit=1.17.0-1"),
        ("E: Version not found", 100, 0, 1, "libcuda1=535.1-1 nvidia-container-toolkit=1.17.0-1"),
        (f"{GOOD}\nInst other (1 Site:1 [amd64])", 0, 0, 1, "libcuda1=535.1-1 nvidia-container-toolkit=1.17.0-1"),
        (f"{GOOD}\nRemv other [1]", 0, 0, 1, "libcuda1=535.1-1 nvidia-container-toolkit=1.17.0-1"),
    ],
    ids=["goes back", "breaks", "archive lacks it", "brings more", "takes more"],
)
def test_former_version_is_put_back_where_it_can_be_had_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str, simulated: int, installed: int, runs: int, told: str
) -> None:
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    text = APT.format(calls=calls, plan=plan, simulated=simulated, installed=installed)
    marks = tmp_path / "marks"
    marks.touch()
    for name, script in (("apt-get", text), ("apt-mark", f'#!/bin/sh\necho "$@" >>{marks}\n')):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    packages = {
        "nvidia-kernel-dkms": {"version": "535.2-1", "status": "ii", "source": SOURCE},
        "libcuda1": {"version": "535.2-1", "status": "ii", "source": SOURCE},
        "nvidia-container-toolkit": {"version": "1.19.1-1", "status": "ii", "source": ""},
    }
    changed = {"libcuda1": "535.1-1", "nvidia-container-toolkit": "1.17.0-1"}
    before = {name: {"version": version, "is_auto": True} for name, version in changed.items()}
    values = {
        "gpu_facts_host": {"packages": packages},
        "gpu_repos_removal": {"changed": changed},
        "gpu_repos_baseline": {"packages": before},
        "calls": str(calls),
    }
    found = run(tmp_path, FORMER, values)
    assert len(found["ran"]) == runs
    assert marks.read_text() == ("auto nvidia-container-toolkit\n" if (runs, installed) == (2, 0) else "")
    assert all("--no-remove" in line and line.endswith(" nvidia-container-toolkit=1.17.0-1") for line in found["ran"])
    assert f"apt-get install --allow-downgrades {told}" in found["output"].replace('"', "").replace("\\n", " ")
    assert "a driver is not moved unasked" in found["output"]
