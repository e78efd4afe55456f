"""When role gpu_reboot restarts a node and when it must not: the role itself, run by the real ansible-playbook.

Stand-ins, labelled as such: the module that restarts (it writes down that it was called), the script that loads the
driver anew, the connection (local, under another name) and gpu_facts, which shows a node as a case describes it, one
look after the other. Every case is a host of one run.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible", reason="roles are run by ansible-core, which is not installed")

KERNEL, NEWER = "6.1.0-50-amd64", "6.1.0-56-amd64"
VERSION = "535.261.03"
FACTS = """
- name: Look again, at the next of what the case shows
  ansible.builtin.set_fact:
    gpu_facts_host: "{{ gpu_case_looks[0] }}"
    gpu_case_looks: "{{ gpu_case_looks[1:] or gpu_case_looks }}"
    gpu_case_seen: "{{ gpu_case_seen | default(0) | int + 1 }}"
"""
MODULE = """#!/usr/bin/python
# Stand-in for ansible.builtin.reboot: writes down that it was called, and how.
import json, os
from ansible.module_utils.basic import AnsibleModule
names = ("host", "reboot_timeout", "msg")
module = AnsibleModule(argument_spec={name: {"type": "str"} for name in names}, supports_check_mode=True)
if not module.check_mode:
    with open(os.environ["CASE_LOG"], "a") as file:
        file.write(json.dumps({"restart": module.params}) + "\\n")
module.exit_json(changed=True)
"""
RELOAD = """#!/bin/sh
# Stand-in for the script that loads the driver anew: its last argument says how it ends.
echo "{\\"reload\\": \\"$*\\"}" >>"$CASE_LOG"
for last; do :; done
case $last in
ends-*) [ "$last" = ends-0 ] || echo 'process 7 holds /dev/nvidia0'; exit "${last#ends-}" ;;
esac
"""
CONNECTION = '''
from ansible.plugins.connection.local import Connection as Local
DOCUMENTATION = """
name: elsewhere
short_description: stand-in, local under another name
description: [A local connection that no play takes for the controller.]
options: {}
"""
class Connection(Local):
    transport = "elsewhere"
'''
PLAY = """
- hosts: all
  gather_facts: false
  vars:
    gpu_facts_profile: {driver: {flavours: {proprietary: {module: nvidia-current}}}}
    gpu_facts_host: "{{ gpu_case_first }}"
  tasks:
    - name: Take the node as the driver's role left it
      ansible.builtin.set_fact:
        gpu_facts_host: "{{ gpu_case_first }}"
    - name: Restart where it is due
      ansible.builtin.include_role: {name: gpu_reboot}
    - name: The same once more in the same run, as after a rollback
      ansible.builtin.include_role: {name: gpu_reboot}
    - name: Come to the end
      ansible.builtin.debug:
        msg: "{{ inventory_hostname }} went on"
"""


def node(running: str = KERNEL, loaded: str = VERSION, boot_id: str = "first", **changes: Any) -> dict[str, Any]:
    """What gpu_facts shows of a node with one GPU, the driver installed for both kernels."""
    row = {"name": "nvidia-current", "path": "/m.ko", "version": VERSION, "license": "NVIDIA"}
    return {
        "os": {"id": "debian12", "is_container": False, "boot_id": boot_id},
        "kernel": {"running": running, "target": NEWER},
        "modules": {KERNEL: [row], NEWER: [row]},
        "module": {"version": loaded, "is_open": False},
        "gpus": [{"address": "0000:01:00.0", "device": "2330", "driver": "nvidia"}],
        "busy": [],
        **changes,
    }


BUSY = [{"command": "train", "pid": 7}]
OLD_KERNEL = node()
OLD_MODULE = node(NEWER, loaded="535.1")
WELL = node(NEWER, boot_id="second")
RELOADED = node(NEWER)


def case(first: dict[str, Any], *looks: dict[str, Any], ends: int = 0, **variables: Any) -> dict[str, Any]:
    """Return a case: the node, each further look at it, how a reload ends, and variables."""
    reload = ["nvidia-persistenced", f"ends-{ends}"]
    return {"gpu_case_first": first, "gpu_case_looks": list(looks), "gpu_reboot_services": reload, **variables}


def here() -> str:
    """Return the boot id of the machine that runs the tests."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


CASES = {
    "well": case(WELL, WELL),
    "kernel": case(OLD_KERNEL, OLD_KERNEL, WELL, gpu_reboot_timeout=77),
    "always": case(WELL, WELL, {**WELL, "os": {**WELL["os"], "boot_id": "third"}}, gpu_reboot_policy="always"),
    "requested": case(RELOADED, RELOADED, WELL, gpu_reboot_requests=["MIG mode"]),
    "reloaded": case(OLD_MODULE, OLD_MODULE, RELOADED),
    "held": case(OLD_MODULE, OLD_MODULE, OLD_MODULE, WELL, ends=3),
    "no-live": case(OLD_MODULE, OLD_MODULE, WELL, gpu_reboot_live_reload=False),
    "script-broken": case(OLD_MODULE, OLD_MODULE, ends=1),
    "never": case(OLD_KERNEL, OLD_KERNEL, gpu_reboot_policy="never"),
    "never-reload": case(OLD_MODULE, OLD_MODULE, RELOADED, gpu_reboot_policy="never"),
    "report": case(OLD_KERNEL, OLD_KERNEL, gpu_reboot_policy="report"),
    "report-reload": case(OLD_MODULE, OLD_MODULE, gpu_reboot_policy="report"),
    "busy-since": case(OLD_KERNEL, node(busy=BUSY)),
    "busy-always": case(WELL, node(NEWER, busy=BUSY), gpu_reboot_policy="always"),
    "busy-reload": case(OLD_MODULE, {**OLD_MODULE, "busy": BUSY}),
    "busy-allowed": case(OLD_KERNEL, node(busy=BUSY), WELL, gpu_preflight_allow_busy=True),
    "drained": case(
        OLD_KERNEL, node(busy=BUSY), WELL, gpu_preflight_is_disruptive=True, gpu_rollout_drain=["drain", "node"]
    ),
    "drain-not-run": case(OLD_KERNEL, node(busy=BUSY), gpu_rollout_drain=["drain", "node"]),
    "services": case(OLD_KERNEL, node(busy=[{"command": "nvidia-persiste", "pid": 3}]), WELL),
    "container": case({**OLD_KERNEL, "os": {"is_container": True, "boot_id": "x"}}, gpu_reboot_policy="always"),
    "controller": case(OLD_KERNEL, OLD_KERNEL, gpu_reboot_policy="always", ansible_connection="local"),
    "same-machine": case(node(boot_id=here()), node(boot_id=here())),
    "not-restarted": case(OLD_KERNEL, OLD_KERNEL, node(NEWER, boot_id="first")),
    "no-help": case(OLD_KERNEL, OLD_KERNEL, node(boot_id="second")),
    "module-refused": case(OLD_KERNEL, OLD_KERNEL, node(NEWER, loaded="", boot_id="second")),
}


def run(folder: Path, *flags: str) -> dict[str, Any]:
    """Run all cases once; return the calls of the stand-ins, and Ansible's results, by case."""
    shutil.copytree(playbook_files.ROLES / "gpu_reboot", folder / "roles/gpu_reboot")
    path = folder / "roles/gpu_reboot/tasks/restart.yml"
    text = path.read_text(encoding="utf-8")
    assert text.count("ansible.builtin.reboot:\n") == 1
    stand_in = 'note_reboot:\n    host: "{{ inventory_hostname }}"\n'
    path.write_text(text.replace("ansible.builtin.reboot:\n", stand_in), encoding="utf-8")
    (folder / "roles/gpu_reboot/files/reload.sh").write_text(RELOAD, encoding="utf-8")
    for name, content in {
        "roles/gpu_facts/tasks/main.yml": FACTS,
        "library/note_reboot.py": MODULE,
        "connections/elsewhere.py": CONNECTION,
        "play.yml": PLAY,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    shared = {"ansible_connection": "elsewhere", "ansible_python_interpreter": sys.executable}
    hosts = {}
    for name, values in CASES.items():
        hosts[name] = {**shared, **copy.deepcopy(values)}
        # The stand-in writes its words down; the name tells whose they are.
        hosts[name]["gpu_reboot_services"] = [name, *values["gpu_reboot_services"]]
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    log = folder / "calls"
    log.touch()
    environment = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(folder / "connections"),
        "ANSIBLE_FILTER_PLUGINS": str(playbook_files.PLAYBOOKS / "filter_plugins"),
        "ANSIBLE_FORKS": "8",
        "ANSIBLE_LIBRARY": str(folder / "library"),
        "ANSIBLE_NOCOLOR": "1",
        "CASE_LOG": str(log),
        "LC_ALL": "C.UTF-8",
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    words = [str(program), "-i", str(folder / "hosts.json"), *flags, str(folder / "play.yml")]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    calls = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    restarts: dict[str, list[dict[str, str]]] = {name: [] for name in CASES}
    reloads: dict[str, list[str]] = {name: [] for name in CASES}
    for call in calls:
        if "restart" in call:
            restarts[call["restart"]["host"]].append(call["restart"])
        else:
            reloads[call["reload"].split()[0]].append(call["reload"])
    return {"restarts": restarts, "reloads": reloads, "output": done.stdout + done.stderr, "status": done.returncode}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of all cases."""
    return run(tmp_path_factory.mktemp("reboot"))


def said(ran: dict[str, Any], name: str) -> str:
    """Return what the run said of a host, in one line."""
    lines = ran["output"].splitlines()
    found = [index for index, line in enumerate(lines) if f": [{name}]" in line]
    return " ".join(" ".join(lines[index : index + 4]) for index in found)


EXPECTED = {
    # case: how often the node was restarted, and its driver loaded anew
    "well": (0, 0),
    "kernel": (1, 0),
    "always": (1, 0),
    "requested": (1, 0),
    "reloaded": (0, 1),
    "held": (1, 1),
    "no-live": (1, 0),
    "script-broken": (0, 1),
    "never": (0, 0),
    "never-reload": (0, 1),
    "report": (0, 0),
    "report-reload": (0, 0),
    "busy-since": (0, 0),
    "busy-always": (0, 0),
    "busy-reload": (0, 0),
    "busy-allowed": (1, 0),
    "drained": (1, 0),
    "drain-not-run": (0, 0),
    "services": (1, 0),
    "container": (0, 0),
    "controller": (0, 0),
    "same-machine": (0, 0),
    "not-restarted": (1, 0),
    "no-help": (1, 0),
    "module-refused": (1, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_node_is_restarted_at_most_once_and_only_where_it_may_be(ran: dict[str, Any], name: str) -> None:
    if name == "same-machine" and not here():
        pytest.skip("this machine has no boot id that could be the node's")
    assert (len(ran["restarts"][name]), len(ran["reloads"][name])) == EXPECTED[name], said(ran, name)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"script-broken", "not-restarted", "no-help", "module-refused"}))
def test_what_is_not_done_fails_no_run(ran: dict[str, Any], name: str) -> None:
    assert f"{name} went on" in ran["output"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("never", "gpu_reboot_policy is never"),
        ("report", "gpu_reboot_policy is report"),
        ("busy-since", "GPUs are in use by train (7)"),
        ("busy-always", "GPUs are in use by train (7)"),
        ("busy-reload", "gpu_rollout_drain"),
        ("drain-not-run", "GPUs are in use by train (7)"),
        ("container", "a container has no kernel of its own"),
        ("controller", "this is the machine that Ansible runs on"),
        ("same-machine", "this is the machine that Ansible runs on"),
        ("held", "process 7 holds /dev/nvidia0"),
    ],
)
def test_what_is_due_and_not_done_is_said_with_the_reason(ran: dict[str, Any], name: str, words: str) -> None:
    assert words in said(ran, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not-restarted", "was never restarted: its boot id is still first"),
        ("no-help", f"After the restart: kernel {KERNEL} runs, and {NEWER} is the one to run"),
        ("module-refused", "After the restart: no module is loaded for the GPUs"),
        ("script-broken", "non-zero return code"),
    ],
)
def test_a_restart_that_did_not_help_fails_the_node_and_is_not_tried_again(
    ran: dict[str, Any], name: str, words: str
) -> None:
    assert words in said(ran, name)
    assert f"{name} went on" not in ran["output"]


def test_the_time_that_a_restart_may_take_is_the_roles_variable(ran: dict[str, Any]) -> None:
    assert ran["restarts"]["kernel"][0]["reboot_timeout"] == "77"
    assert ran["restarts"]["requested"][0]["reboot_timeout"] == "900"
    assert "MIG mode" in ran["restarts"]["requested"][0]["msg"]


def test_check_mode_restarts_nothing_and_loads_nothing(tmp_path: Path) -> None:
    # One case for each way to a restart or a reload, and one that is told.
    ran = run(tmp_path, "--check", "--limit", "kernel,always,requested,reloaded,held,drained,never")
    assert not any(ran["restarts"].values())
    assert not any(ran["reloads"].values())
    assert f"kernel {KERNEL} runs, and {NEWER} is the one to run" in said(ran, "never")
