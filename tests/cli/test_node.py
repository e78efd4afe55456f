"""`provision node` with the real ansible-playbook on small playbooks; a stand-in where a process must misbehave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provision.cli.parser import build_parser
from provision.generate.node import lock_digest

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOK = """
- name: Look first
  hosts: "{{ gpu_hosts | default('gpu_nodes') }}"
  gather_facts: false
  any_errors_fatal: true
  roles:
    - role: gpu_preflight
      tags: [always]

- name: Make the nodes
  hosts: "{{ gpu_hosts | default('gpu_nodes') }}"
  gather_facts: false
  serial: 2
  roles:
    - role: gpu_driver
      tags: [driver, packages]
"""
PREFLIGHT = """
- name: Ask
  ansible.builtin.raw: "true"
  changed_when: false
  check_mode: false

- name: Refuse
  ansible.builtin.fail:
    msg: "{{ gpu_problems }}"
  when: gpu_problems | default([]) | length > 0
"""
DRIVER = """
- name: Write files
  ansible.builtin.raw: >-
    cd {{ gpu_folder }} && [ "$(cat {{ gpu_driver_file }} 2>&1)" = {{ provision_lock.name }} ] ||
    { echo {{ provision_lock.name }} > {{ '/dev/null' if ansible_check_mode else gpu_driver_file }}; echo it differs; }
  vars:
    gpu_driver_file: "{{ inventory_hostname }}-{{ item }}"
  register: gpu_driver_said
  changed_when: "'it differs' in gpu_driver_said.stdout"
  check_mode: false
  loop: [one, two]

- name: Say what stays
  ansible.builtin.debug:
    msg: |-
      {{ inventory_hostname }} had another version of these before the first run.
      apt-get install --allow-downgrades {{ gpu_stays }}
  when: gpu_stays is defined

- name: Say what nobody asked about
  ansible.builtin.debug:
    msg: for -v alone
    verbosity: 1

- name: Wait
  ansible.builtin.command: "sleep {{ gpu_seconds | default(0) }}"
  changed_when: false
  when: inventory_hostname in gpu_slow | default([])

- name: Fail
  ansible.builtin.fail:
    msg: told to fail
  when: inventory_hostname in gpu_bad | default([])

- name: Mend
  block:
    - name: Break
      ansible.builtin.fail:
        msg: this is mended
      when: inventory_hostname in gpu_mended | default([])
  rescue:
    - name: Repair
      ansible.builtin.set_fact:
        gpu_driver_is_repaired: true
"""
WRITE = """
- name: Write files
  ansible.builtin.copy:
    dest: "{{ gpu_folder }}/{{ inventory_hostname }}-{{ item }}"
    content: "{{ provision_lock.name }}\\n"
    mode: "0644"
  loop: [one, two]
"""
ROLLBACK = """
- name: Go back
  hosts: gpu_nodes
  gather_facts: false
  tasks:
    - name: Say
      ansible.builtin.fail:
        msg: "generation {{ gpu_rollback_to }}, {{ 'lock' if provision_lock.name != 'test-lock' else 'no lock' }}"
"""
LAUNCHER = """
import sys
from pathlib import Path
import provision.assets, provision.node.lock, provision.node.playbook
for module in (provision.assets, provision.node.lock, provision.node.playbook):
    module.asset_dir = lambda name: Path({folder!r}) / name
from provision.cli.main import entry
entry()
"""

Answer = Any


def _lock(name: str = "test-lock") -> dict[str, Any]:
    document = {"lock_version": 1, "facts_date": "2026-11-21", "name": name, "profiles": {"debian12": {}}}
    return {"provision_lock": {**document, "digest": lock_digest(document)}}


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    """A folder with small playbooks in the place of the shipped ones."""
    playbooks = tmp_path / "assets" / "playbooks"
    for role, text in (("gpu_preflight", PREFLIGHT), ("gpu_driver", DRIVER)):
        (playbooks / "roles" / role / "tasks").mkdir(parents=True)
        (playbooks / "roles" / role / "tasks" / "main.yml").write_text(text)
    for name in ("gpu-node.yml", "gpu-node-verify.yml", "gpu-node-remove.yml"):
        (playbooks / name).write_text(PLAYBOOK)
    (playbooks / "group_vars" / "all").mkdir(parents=True)
    (playbooks / "group_vars" / "all" / "provision_lock.yml").write_text(json.dumps(_lock()))
    return playbooks.parent


@pytest.fixture
def modules(assets: Path) -> None:
    """Let the roles ask and write with modules of Ansible, as real ones do; each costs four times a line of shell."""
    roles = assets / "playbooks" / "roles"
    (roles / "gpu_preflight" / "tasks" / "main.yml").write_text(PREFLIGHT.replace("builtin.raw", "builtin.command"))
    (roles / "gpu_driver" / "tasks" / "main.yml").write_text(WRITE)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Where the roles write."""
    (tmp_path / "made").mkdir()
    return tmp_path / "made"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.ini"
    python = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
    path.write_text(f"[gpu_nodes]\nn[1:3] {python}\n[rack1]\nn1\nn2\n")
    return path


@pytest.fixture
def node(
    provision: Callable[..., Answer],
    assets: Path,
    made: Path,
    inventory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Answer]:
    """Call `provision node ACTION` with the small playbooks and the inventory of three hosts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("provision.node.lock.asset_dir", lambda name: assets / name)
    monkeypatch.setattr("provision.node.playbook.asset_dir", lambda name: assets / name)

    def call(action: str, *words: object) -> Answer:
        given = () if "-i" in words else ("-i", inventory)
        return provision("node", action, *given, "-e", f"gpu_folder={made}", *words)

    return call


def _statuses(answer: Answer) -> dict[str, str]:
    return {row["host"]: row["status"] for row in answer.document["result"]["hosts"]}


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_plan_lists_what_would_change_and_changes_nothing(
    modules: None, node: Callable[..., Answer], made: Path
) -> None:
    answer = node("plan")
    assert answer.code == 0
    assert _files(made) == []
    # Hosts on which the same would happen share the lines.
    assert "n1, n2, n3 would change\n  gpu_driver\n    Write files: one\n    Write files: two\n" in answer.out
    assert "3 hosts: 3 would change" in answer.out
    strict = node("plan", "-v", "--fail-on-change")
    assert strict.code == 8
    assert "+test-lock" in strict.out


def test_apply_makes_the_nodes_and_changes_nothing_the_second_time(
    modules: None, node: Callable[..., Answer], made: Path
) -> None:
    first = node("apply", "--json")
    assert (first.code, _statuses(first)) == (0, dict.fromkeys(("n1", "n2", "n3"), "changed"))
    assert len(_files(made)) == 6
    second = node("apply", "--json")
    assert (second.code, _statuses(second)) == (0, dict.fromkeys(("n1", "n2", "n3"), "ok"))
    row = second.document["result"]["hosts"][0]
    assert row["changed_tasks"] == 0
    # One to look, one for each item of the loop; what is skipped or done here does not count.
    assert row["remote_executions"] == 3
    assert row["roles"] == {"gpu_preflight": "ok", "gpu_driver": "ok"}
    assert second.document["result"]["ansible"]
    assert not Path(".provision").exists()
    assert node("plan", "--fail-on-change").code == 0


def test_dry_run_changes_nothing_and_quiet_says_nothing(node: Callable[..., Answer], made: Path) -> None:
    answer = node("apply", "--dry-run", "-q")
    assert (answer.code, answer.err) == (0, "")
    assert _files(made) == []
    assert not Path(".provision").exists()


def test_failed_verification_has_a_code_of_its_own(node: Callable[..., Answer]) -> None:
    assert node("verify", "-e", 'gpu_bad=["n2"]').code == 6


def test_problems_of_the_preflight_are_all_shown_as_they_are(node: Callable[..., Answer], made: Path) -> None:
    problems = [f"problem {number}: {'x' * 200}" for number in range(60)]
    evil = "$(touch pwned); `touch pwned` ' \" \\"
    answer = node("apply", "-e", f"gpu_problems={json.dumps([*problems, evil])}", "--json")
    assert answer.code == 5
    assert _files(made) == []
    message = answer.document["result"]["hosts"][0]["message"]
    assert all(problem in message for problem in [*problems, evil])
    assert not Path("pwned").exists()


def test_what_a_rescue_mended_is_no_failure(node: Callable[..., Answer]) -> None:
    answer = node("apply", "-e", 'gpu_mended=["n1"]', "--json")
    assert answer.code == 0
    assert _statuses(answer)["n1"] == "changed"


def test_unreachable_host_ends_with_7(node: Callable[..., Answer], tmp_path: Path) -> None:
    path = tmp_path / "far.ini"
    path.write_text("[gpu_nodes]\nfar ansible_host=127.0.0.1 ansible_port=1 ansible_connection=ssh\n")
    answer = node("apply", "-i", path)
    assert answer.code == 7
    assert "far is unreachable" in answer.out
    assert f"hint: `ansible far -i {path} --user=admin -m ansible.builtin.ping` tries the connection" in (
        node("plan", "-i", path, "-u", "admin").err
    )
    # There is no other host to go on with.
    assert "does the others without" not in answer.err


def test_hosts_that_answer_can_go_on_without_one_that_does_not(
    node: Callable[..., Answer], inventory: Path, made: Path
) -> None:
    with inventory.open("a") as file:
        file.write("[gpu_nodes]\nfar ansible_host=127.0.0.1 ansible_port=1 ansible_connection=ssh\n")
    answer = node("apply")
    assert answer.code != 0
    (words,) = re.findall(r"`--limit '([^']*)'` on the same command", answer.err)
    assert node("apply", "--limit", words).code == 0
    assert len(_files(made)) == 6


def test_plan_and_a_failed_proof_say_what_comes_next(node: Callable[..., Answer], inventory: Path) -> None:
    planned = node("plan")
    assert "next: the same command with `apply` in place of `plan`" in planned.err
    assert node("apply").code == 0
    assert "next:" not in node("plan").err
    failed = node("verify", "-e", 'gpu_bad=["n2", "n3"]')
    assert "`provision node apply` with the same inventory and lock" in failed.err
    assert f"`provision doctor -i {inventory} --limit n2,n3`" in failed.err
    assert node("verify", "-e", 'gpu_bad=["n2"]', "-q").err == ""


def test_dry_run_of_what_is_left_leaves_out_what_was_finished(node: Callable[..., Answer], made: Path) -> None:
    words = ("-e", 'gpu_bad=["n3"]')
    first = node("apply", *words)
    assert "hint: `--resume` on the same command" in first.err
    before = _files(made)
    answer = node("apply", *words, "--resume", "--dry-run", "--json")
    assert set(_statuses(answer)) == {"n3"}
    assert "2 of 3 hosts were finished before; 1 is left" in answer.err
    assert _files(made) == before
    again = node("apply", *words, "--resume", "--json")
    assert set(_statuses(again)) == {"n3"}


def test_words_of_ansible_without_a_way_out_get_one(
    modules: None, node: Callable[..., Answer], inventory: Path
) -> None:
    inventory.write_text("[gpu_nodes]\nn[1:2] ansible_connection=local ansible_python_interpreter=/nowhere/python\n")
    answer = node("plan")
    assert answer.code == 5
    assert answer.err.count("hint: `ansible_python_interpreter` in the inventory") == 1


def test_python_that_is_none_is_heard(
    modules: None, node: Callable[..., Answer], inventory: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such version is installed' >&2\nexit 127\n")
    broken.chmod(0o755)
    inventory.write_text(f"[gpu_nodes]\nn1 ansible_connection=local ansible_python_interpreter={broken}\n")
    answer = node("plan")
    assert answer.code == 5
    assert "no such version is installed" in answer.out


def test_short_flags_are_ansibles(node: Callable[..., Answer], made: Path) -> None:
    assert set(_statuses(node("apply", "--json", "-l", "rack1", "-t", "driver"))) == {"n1", "n2"}


def test_failed_host_is_named_and_resume_does_only_what_is_left(node: Callable[..., Answer], made: Path) -> None:
    words = ("-e", 'gpu_bad=["n3"]')
    first = node("apply", *words)
    assert first.code == 5
    assert "n3 failed: gpu_driver, task `Fail`\n  told to fail\n" in first.out
    assert "3 hosts: 2 changed, 1 failed" in first.out
    for path in made.iterdir():
        path.unlink()
    again = node("apply", *words, "--resume", "--json")
    assert _statuses(again) == {"n3": "failed"}
    assert Path(again.document["result"]["state"]).is_file()
    assert again.document["result"]["done_before"] == ["n1", "n2"]
    assert _files(made) == ["n3-one", "n3-two"]
    other = made.parent / "other.json"
    other.write_text(json.dumps(_lock("other-lock")))
    refused = node("apply", *words, "--resume", "--lock", other)
    assert refused.code == 2
    assert "the lock is another one" in refused.err


def test_resume_without_an_earlier_run_does_all(node: Callable[..., Answer]) -> None:
    answer = node("apply", "--resume", "--json")
    assert answer.code == 0
    assert len(_statuses(answer)) == 3
    assert "no run broke off" in answer.err
    assert "play: Make the nodes (batch 2)" in answer.err
    assert "n3: changed: gpu_driver: Write files" in answer.err


def test_nothing_else_changes_the_same_hosts_while_an_apply_runs(
    node: Callable[..., Answer], made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from provision.node import playbook

    real, seconds = playbook.run_playbook, []

    def run(*words: Any, **settings: Any) -> Any:
        seconds.append(node("apply", "--json"))
        seconds.append(node("apply", "--resume"))
        seconds.append(node("remove"))
        return real(*words, **settings)

    monkeypatch.setattr(playbook, "run_playbook", run)
    assert node("apply").code == 0
    assert [answer.code for answer in seconds] == [7, 7, 7]
    assert "another `provision node apply` is at work on these hosts" in seconds[2].err
    because = seconds[0].document["error"]["because"]
    assert f"process {os.getpid()} on " in because[0]
    assert len(_files(made)) == 6
    assert not Path(".provision").exists()


def test_named_lock_beats_that_of_the_playbooks(node: Callable[..., Answer], made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps(_lock("other-lock")))
    answer = node("apply", "--lock", other, "--json")
    assert answer.document["result"]["lock"]["name"] == "other-lock"
    assert (made / "n1-one").read_text() == "other-lock\n"


def test_a_lock_for_images_says_how_to_write_one_for_nodes(
    node: Callable[..., Answer], provision: Callable[..., Answer], tmp_path: Path
) -> None:
    assert provision("image", "--torch", "2.1", "--gpu", "a100,h100", "-o", "it").code == 0
    answer = node("apply", "--lock", tmp_path / "it" / "provision.lock")
    assert answer.code == 2
    assert "`provision node lock --torch 2.1 --gpu a100 --gpu h100` writes one" in answer.err


def test_lock_of_the_inventory_is_named_where_it_is_the_one_that_is_used(
    node: Callable[..., Answer], made: Path, tmp_path: Path
) -> None:
    shipped = node("plan", "--json").document["result"]
    assert (shipped["lock"]["name"], shipped["lock"]["origin"]) == ("test-lock", "playbooks")
    assert shipped["locks"][0]["hosts"] == ["n1", "n2", "n3"]
    # A group's variables beat those that the playbooks have for all.
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "gpu_nodes.json").write_text(json.dumps(_lock("own-lock")))
    own = node("apply", "--json")
    lock = own.document["result"]["lock"]
    assert (lock["name"], lock["origin"]) == ("own-lock", "inventory")
    assert lock["digest"] == _lock("own-lock")["provision_lock"]["digest"]
    assert (made / "n1-one").read_text() == "own-lock\n"
    assert "the lock of n1, n2, n3 was the inventory's, own-lock" in own.err
    # Hosts may have different ones.
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "n3.json").write_text(json.dumps(_lock("third")))
    several = node("plan", "--json").document["result"]
    assert several["lock"] is None
    assert {row["name"]: row["hosts"] for row in several["locks"]} == {"own-lock": ["n1", "n2"], "third": ["n3"]}


def test_first_line_names_the_lock_that_is_used_and_no_other(node: Callable[..., Answer], tmp_path: Path) -> None:
    assert "lock test-lock of the playbooks; facts of 2026-11-21" in node("plan").err
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "gpu_nodes.json").write_text(json.dumps(_lock("own-lock")))
    said = node("plan").err
    assert "lock: the inventory's own" in said
    assert "test-lock" not in said


def test_what_roles_leave_to_people_is_shown_commands_whole_and_hosts_together(node: Callable[..., Answer]) -> None:
    packages = " ".join(f"libnvidia-part{number}=525.147.05-7" for number in range(9))
    shown = node("remove", "-e", f'gpu_stays="{packages}"')
    assert shown.code == 0
    command = f"  apt-get install --allow-downgrades {packages}"
    assert shown.out.splitlines().count(command) == 1
    assert "n1, n2, n3: to know" in shown.out
    assert "for -v alone" not in shown.out
    document = node("remove", "--json", "-e", f'gpu_stays="{packages}"').document["result"]
    assert [len(row["notes"]) for row in document["hosts"]] == [1, 1, 1]
    assert packages in document["hosts"][2]["notes"][0]


def test_limit_slice_and_tags_choose(node: Callable[..., Answer], made: Path) -> None:
    assert set(_statuses(node("apply", "--json", "--limit", "rack1", "--slice", "2/2", "--tags", "driver"))) == {"n2"}
    assert _files(made) == ["n2-one", "n2-two"]


def test_rollback_goes_to_the_named_generation_and_takes_no_lock(node: Callable[..., Answer], assets: Path) -> None:
    (assets / "playbooks" / "gpu-node-rollback.yml").write_text(ROLLBACK)
    answer = node("rollback", "--to", "3", "--json")
    assert "generation 3, no lock" in answer.document["result"]["hosts"][0]["message"]
    assert answer.document["result"]["lock"] is None


def test_rollback_to_a_lock_names_its_digest_and_leaves_the_lock_to_the_nodes(
    node: Callable[..., Answer], assets: Path, tmp_path: Path
) -> None:
    (assets / "playbooks" / "gpu-node-rollback.yml").write_text(ROLLBACK)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(_lock("other-lock")))
    answer = node("rollback", "--lock", other, "--json")
    digest = _lock("other-lock")["provision_lock"]["digest"]
    # A lock that came with -e would beat the one that each node holds.
    assert f"generation {digest}, no lock" in answer.document["result"]["hosts"][0]["message"]
    assert answer.document["result"]["lock"]["digest"] == digest
    both = node("rollback", "--lock", other, "--to", "3")
    assert (both.code, "keep one of the two" in both.err) == (2, True)
    differs = node("rollback", "--lock", other, "-e", "gpu_rollback_to=3")
    assert (differs.code, "--lock and -e gpu_rollback_to say different things" in differs.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-i", "nowhere.ini"], 2, "nowhere.ini does not exist"),
        (["-i", "localhost,"], 7, "no host matches"),
        (["--limit", "nowhere"], 7, "no host matches"),
        (["--limit", ","], 2, "not a pattern of hosts"),
        (["--limit", " : "], 2, "not a pattern of hosts"),
        (["--limit", "~["], 2, "not a pattern of hosts"),
        (["--limit", "all:!n9"], 2, "is called `n9`"),
        (["--slice", "9/2"], 2, "not part of a whole"),
        (["--slice", "9/9"], 7, "has no host"),
        (["--tags", "drivr"], 2, "did you mean `driver`?"),
        (["--lock", "hosts.ini"], 2, "hosts.ini is not YAML"),
        (["-e", "a={{ b }}"], 2, "holds a template"),
        (["--forks", "0"], 2, "write a whole number from 1 to 1000, as in `--forks 25`"),
        (["--vault-password-file", "nowhere"], 2, "name a file with the password in it"),
        (["--private-key", "nowhere"], 2, "--private-key: nowhere is not a file"),
        (["--lock", "my lock.yml"], 2, "`provision node lock --gpu h100 -o 'my lock.yml'`"),
        (["--lock", "assets/playbooks"], 2, "`--lock assets/playbooks/group_vars/all/provision_lock.yml`"),
        (["--log", "hosts.ini"], 5, "choose another folder with `--log DIR`"),
        (["-u", "a b"], 2, "as in `-u admin`"),
        (["--nope"], 2, "unknown flag `--nope` for `provision node plan`"),
        (["more"], 2, "unexpected argument"),
    ],
)
def test_wrong_words_are_refused_with_the_reason(
    node: Callable[..., Answer], words: list[str], code: int, said: str
) -> None:
    answer = node("plan", *words)
    assert answer.code == code
    assert said in answer.err


def test_playbook_that_cannot_be_read_is_no_success(node: Callable[..., Answer], assets: Path) -> None:
    (assets / "playbooks" / "gpu-node.yml").write_text("- hosts: all\n  roles: [nowhere]\n")
    answer = node("apply")
    assert answer.code == 5
    assert "nowhere" in answer.err


def test_log_keeps_what_ansible_said(node: Callable[..., Answer], tmp_path: Path) -> None:
    assert node("apply", "--log", tmp_path / "logs").code == 0
    assert "PLAY RECAP" in (tmp_path / "logs" / "apply.log").read_text()
    events = [json.loads(line) for line in (tmp_path / "logs" / "apply.events.jsonl").read_text().splitlines()]
    assert events[0]["event"] == "start"
    assert events[-1]["event"] == "stats"


def test_shared_flags_may_stand_before_the_action(provision: Callable[..., Answer]) -> None:
    answer = provision("--json", "node", "plan", "-i", "nowhere.ini")
    assert answer.document["error"]["code"] == "usage"
    assert provision("node", "--json", "plan", "-i", "nowhere.ini").document["ok"] is False


@pytest.mark.parametrize("action", ["lock", "plan", "apply", "verify", "rollback", "remove", "export"])
def test_every_action_explains_itself(provision: Callable[..., Answer], action: str) -> None:
    answer = provision("node", action, "--help")
    assert answer.code == 0
    assert f"usage: provision node {action}" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 120
    parser = build_parser("node")
    part = next(item for item in parser._actions if isinstance(item.choices, dict)).choices[action]
    part.fill()
    assert all(item.help for item in part._actions)


# From here on another process is the program, or stands in for Ansible.


@pytest.fixture
def launch(
    assets: Path, made: Path, inventory: Path, tmp_path: Path, environment: dict[str, str]
) -> Callable[..., Any]:
    """Start `provision node apply` as a process that can be signalled."""

    def start(*words: str, **variables: str) -> subprocess.Popen[str]:
        script = LAUNCHER.format(folder=str(assets))
        given = ["node", "apply", "-i", str(inventory), "-e", f"gpu_folder={made}", "--json", *words]
        return subprocess.Popen(
            [sys.executable, "-c", script, *given],
            cwd=tmp_path,
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def _wait_for(is_there: Callable[[], bool]) -> None:
    for _ in range(600):
        if is_there():
            return
        time.sleep(0.1)
    pytest.fail("it never came to that")


def _running(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if (
                mark in path.read_text().split("\0")
                and "Z" not in (path.parent / "stat").read_text().rpartition(")")[2][:3]
            ):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_says_what_was_done_leaves_no_child_and_can_be_resumed(
    launch: Callable[..., Any], made: Path, tmp_path: Path, number: signal.Signals
) -> None:
    seconds = f"98{os.getpid()}{number:02}"
    slow = ("-e", 'gpu_slow=["n3"]', "-e", f"gpu_seconds={seconds}")
    running = launch(*slow)
    _wait_for(lambda: bool(_running(seconds)))
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    document = json.loads(out)["result"]
    assert document["is_interrupted"] is True
    assert {row["host"]: row["status"] for row in document["hosts"]} == {
        "n1": "changed",
        "n2": "changed",
        "n3": "incomplete",
    }
    _wait_for(lambda: not _running(seconds))
    for path in made.iterdir():
        path.unlink()
    again = launch(*slow, "--resume")
    _wait_for(lambda: bool(_running(seconds)))
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=60)
    assert _files(made) == ["n3-one", "n3-two"]


STAND_IN = """#!{python}
import os, sys
real = {real!r}
if os.path.basename(sys.argv[0]) == "ansible":
    os.execv(real, [real, *sys.argv[1:]])
write = lambda text: os.write(int(os.environ["PROVISION_NODE_EVENTS"]), text.encode())
write('{{"event": "start", "ansible": "0", "plays": ["make"]}}\\n{{"event": "play", "number": 0, "name": "make"}}\\n')
write('{{"event": "result", "host": "n1", "status": "changed", "task": "t", "role": "r", "remote": 1}}\\n')
{what}
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a program in the place of ansible-playbook."""
    from provision.node.ansible import find_program

    real = find_program("ansible")

    def write(what: str) -> None:
        programs = tmp_path / "programs"
        programs.mkdir()
        for name in ("ansible", "ansible-playbook"):
            (programs / name).write_text(STAND_IN.format(python=sys.executable, real=real, what=what))
            (programs / name).chmod(0o755)
        monkeypatch.setattr("provision.node.hosts.find_program", lambda name: str(programs / name))
        monkeypatch.setattr("provision.node.playbook.find_program", lambda name: str(programs / name))

    return write


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("os.kill(os.getpid(), 9)", id="killed"),
        pytest.param("sys.exit(0)", id="ends as if all were well"),
        pytest.param("write('rubbish\\n' * 5 + '{\"event\": '); sys.exit(2)", id="garbled"),
        pytest.param("os.close(int(os.environ['PROVISION_NODE_EVENTS'])); print('no'); sys.exit(1)", id="silent"),
    ],
)
def test_ansible_that_dies_is_never_a_success(
    node: Callable[..., Answer], stand_in: Callable[[str], None], what: str
) -> None:
    stand_in(what)
    answer = node("apply", "--json")
    assert answer.code == 5
    document = answer.document.get("result") or answer.document["error"]["result"]
    assert {row["host"]: row["status"] for row in document["hosts"]} == {
        "n1": "incomplete",
        "n2": "skipped",
        "n3": "skipped",
    }
    # Nobody is finished, so all are done again.
    state = json.loads(next(Path(".provision").iterdir()).read_text())
    assert state["done"] == {}


def test_missing_ansible_ends_with_7_and_the_way_to_get_it(
    node: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = node("plan")
    assert answer.code == 7
    assert "gpu-provision[ansible]" in answer.err


def test_disk_that_is_full_costs_the_note_and_not_the_run(
    node: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("provision.files.os.fsync", fail)
    answer = node("apply")
    assert answer.code == 0
    assert "No space left on device" in answer.err
