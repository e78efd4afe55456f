"""The health program of a Slurm node, as a process of its own against a stand-in for Slurm's commands.

`tests/fake_slurm.py` is the stand-in; device nodes, /proc/driver/nvidia and nvidia-smi are files of a folder.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import playbook_files
import pytest
from fake_slurm import FakeSlurm

from provision.generate.slurm.health import render_health_facts
from provision.matrix.load import Matrix

PROGRAM = playbook_files.ROLES / "gpu_slurm" / "files" / "node_health.py"
FACTS = json.loads(render_health_facts(Matrix()))
XID_79 = "The driver lost its connection to a GPU (Xid 79)"
PASSED = {"ok": True, "counts": {"pass": 9, "fail": 0, "unknown": 0, "skip": 2}, "groups": []}


class Machine:
    """A folder that stands for a node of a stand-in cluster."""

    def __init__(self, folder: Path, slurm: FakeSlurm, name: str) -> None:
        self.folder = folder / name
        self.slurm = slurm
        self.name = name
        (self.folder / "dev").mkdir(parents=True)
        for index in range(2):
            (self.folder / f"dev/nvidia{index}").touch()
            (self.folder / f"driver/gpus/0000:0{index}:00.0").mkdir(parents=True)
        (self.folder / "kmsg").touch()
        self.write_program("nvidia-smi", 'echo \'<nvidia_smi_log><gpu id="a"/><gpu id="b"/></nvidia_smi_log>\'')
        self.write_program("prove", f"echo '{json.dumps({'result': PASSED})}'")
        self.settings: dict[str, Any] = {
            "schema_version": 1,
            "gpus": 2,
            "limit_percent": 50,
            "devices": str(self.folder / "dev"),
            "driver": str(self.folder / "driver"),
            "kernel_log": str(self.folder / "kmsg"),
            "nvidia_smi": str(self.folder / "nvidia-smi"),
            "ledger": str(self.folder / "ledger.jsonl"),
            "state": str(self.folder / "state"),
            "prove": [str(self.folder / "prove")],
            "start_proof": ["touch", str(self.folder / "asked")],
            "quick_seconds": 5,
            **FACTS,
        }

    def write_program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def say_xid(self, code: int, seconds: int = 100) -> None:
        line = f"4,77,{seconds}000000,-;NVRM: Xid (PCI:0000:01:00): {code}, pid=1, GPU has fallen off the bus.\n"
        with (self.folder / "kmsg").open("a", encoding="utf-8") as file:
            file.write(line)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        settings = self.folder / "health.json"
        settings.write_text(json.dumps(self.settings), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-SE", str(PROGRAM), *words, "--settings", str(settings)],
            env=self.slurm.environment(self.name, **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environment: str) -> str:
        child = self.start(*words, **environment)
        out, said = child.communicate(timeout=60)
        assert child.returncode == 0, said
        assert "Traceback" not in said
        return out + said

    def ledger(self) -> list[dict[str, Any]]:
        path = self.folder / "ledger.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def done(self) -> list[str]:
        return [row["what"] for row in self.ledger()]

    @property
    def state(self) -> dict[str, str]:
        row: dict[str, str] = self.slurm.read()["nodes"][self.name]
        return row


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "slurm", {"gpu": ["n1", "n2", "n3", "n4"]})


@pytest.fixture
def node(tmp_path: Path, slurm: FakeSlurm) -> Machine:
    return Machine(tmp_path, slurm, "n1")


def test_a_healthy_node_is_left_alone_and_the_controller_is_asked_once_at_most(node: Machine) -> None:
    node.run()
    assert node.state["state"] == "idle"
    assert node.ledger() == []
    # About itself alone: thousands of nodes ask every few minutes.
    assert node.slurm.read()["calls"] == [["scontrol", "--oneliner", "show", "node", "n1"]]
    node.run("prolog")
    node.run("epilog")
    assert len(node.slurm.read()["calls"]) == 1


def test_a_fatal_xid_drains_the_node_with_doctor_s_sentence(node: Machine) -> None:
    node.say_xid(79)
    node.run()
    assert node.state == {"state": "drained", "reason": f"provision: {XID_79}"}
    row = node.ledger()[0]
    assert (row["what"], row["node"], row["why"], row["check"]) == ("drain", "n1", f"provision: {XID_79}", "xid.79")
    assert row["who"]["mode"] == "health"
    assert row["when"].endswith("Z")
    assert node.slurm.read()["reservations"] == {}


def test_an_xid_of_a_program_drains_nothing(node: Machine) -> None:
    node.say_xid(13)
    node.run()
    assert node.state["state"] == "idle"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (["rm", "dev/nvidia1"], "Device nodes of the driver are missing or closed: 1 of 2"),
        (["rmdir", "driver/gpus/0000:01:00.0"], "A GPU of the machine is not offered by the driver: 1 of 2"),
    ],
)
def test_a_missing_gpu_is_named(node: Machine, damage: list[str], reason: str) -> None:
    subprocess.run(damage, check=True, cwd=node.folder)
    node.run("prolog")
    assert node.state["reason"] == f"provision: {reason}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sleep 60", "The driver no longer answers"),
        ("exit 15", "A GPU fell off the PCIe bus"),
        (
            "echo '<l><gpu id=\"a\"><gpu_recovery_action>Reset</gpu_recovery_action></gpu><gpu/></l>'",
            "The driver asks for a recovery of a GPU (Xid 154): a, Reset",
        ),
    ],
)
def test_what_nvidia_smi_says_or_does_not_say_counts_in_health_alone(node: Machine, script: str, reason: str) -> None:
    node.write_program("nvidia-smi", script)
    node.settings["smi_seconds"] = 0.5
    node.run("prolog")
    assert node.state["state"] == "idle"
    node.run("health")
    assert node.state["reason"].startswith(f"provision: {reason}")


def test_doctor_s_own_cause_takes_the_place_of_the_check_s_sentence(node: Machine, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.\n", encoding="utf-8")
    words = [sys.executable, "-m", "provision", "doctor", "--text", str(log), "--json"]
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=False).stdout)
    cause = said["result"]["causes"][0]
    assert cause["diagnosis"] == "gpu.lost"
    node.say_xid(79)
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"result": {"targets": [{"target": "local", "causes": [cause]}]}}), encoding="utf-8")
    node.write_program("doctor", f"cat {answer}; exit 6")
    node.settings["explain"] = [str(node.folder / "doctor")]
    node.run()
    assert node.state["reason"] == f"provision: {cause['title']}"
    row = node.ledger()[0]
    assert row["check"] == "gpu.lost"
    assert row["repair"].startswith(cause["fix"][0])


def test_a_young_report_that_fails_drains_and_an_old_one_does_not(node: Machine) -> None:
    check = {"id": "gpu.ecc.uncorrected", "status": "fail", "severity": "critical", "seen": "3 errors\n of memory"}
    report = node.folder / "report.json"
    report.write_text(json.dumps({"result": {"targets": [{"target": "local", "ok": False, "checks": [check]}]}}))
    node.settings["report"] = str(report)
    os.utime(report, (1, 1))
    node.run("epilog")
    assert node.state["state"] == "idle"
    os.utime(report)
    node.run("epilog")
    assert node.state["reason"] == "provision: gpu.ecc.uncorrected: 3 errors of memory"


def test_slurm_says_by_its_own_variable_what_it_calls_the_program_for(node: Machine) -> None:
    node.settings["jobs"] = "requeue"
    node.slurm.set(jobs={"7": {"nodes": ["n1"]}})
    node.say_xid(79)
    node.run(SLURM_SCRIPT_CONTEXT="prolog_slurmd", SLURM_JOB_ID="7")
    assert [row["who"]["mode"] for row in node.ledger()] == ["prolog", "prolog"]
    assert node.done() == ["drain", "requeue"]
    assert node.slurm.read()["jobs"] == {}


@pytest.mark.parametrize(("jobs", "left"), [("keep", {"7", "8"}), ("requeue", {"8"})])
def test_jobs_are_kept_or_requeued_by_setting(node: Machine, jobs: str, left: set[str]) -> None:
    node.settings["jobs"] = jobs
    node.slurm.set(jobs={"7": {"nodes": ["n1", "n2"]}, "8": {"nodes": ["n1"], "requeue": False}})
    node.say_xid(79)
    node.run()
    assert set(node.slurm.read()["jobs"]) == left
    assert node.state["state"] == "draining"
    # A job that may not be requeued is told of, and goes on.
    assert ("kept" in node.done()) is (jobs == "requeue")


def test_a_job_that_came_while_the_node_was_drained_is_put_back_too(node: Machine) -> None:
    node.settings["jobs"] = "requeue"
    node.slurm.set(jobs={"9": {"nodes": ["n1"]}})
    node.slurm.set_node("n1", "draining", "provision: something")
    node.say_xid(79)
    node.run("prolog", SLURM_JOB_ID="9")
    assert node.done() == ["requeue"]


def test_the_limit_holds_and_is_not_asked_about_again_at_once(node: Machine) -> None:
    node.slurm.set_node("n2", "down*")
    node.slurm.set_node("n3", "drained", "somebody's")
    node.say_xid(79)
    node.run()
    assert node.state["state"] == "idle"
    row = node.ledger()[0]
    assert row["what"] == "limit"
    assert "gpu: 2 of 4 nodes are out, 50 % are 2" in row["why"]
    calls = len(node.slurm.read()["calls"])
    node.run()
    assert len(node.slurm.read()["calls"]) == calls


def test_a_node_of_two_partitions_keeps_both_limits(tmp_path: Path) -> None:
    slurm = FakeSlurm(tmp_path / "slurm", {"all": ["n1", "n2", "n3", "n4"], "big": ["n1", "n2"]})
    node = Machine(tmp_path, slurm, "n1")
    slurm.set_node("n2", "drained", "x")
    node.say_xid(79)
    node.run()
    assert node.state["state"] == "idle"
    assert "big: 1 of 2" in node.ledger()[0]["why"]
    assert "all:" not in node.ledger()[0]["why"]


def test_nothing_is_drained_at_a_limit_of_nothing(node: Machine) -> None:
    node.settings["limit_percent"] = 0
    node.say_xid(79)
    node.run()
    assert node.state["state"] == "idle"


def test_the_limit_holds_while_all_nodes_turn_bad_at_the_same_time(tmp_path: Path) -> None:
    names = [f"n{index}" for index in range(16)]
    slurm = FakeSlurm(tmp_path / "slurm", {"gpu": names})
    machines = [Machine(tmp_path, slurm, name) for name in names]
    for machine in machines:
        machine.settings["limit_percent"] = 25
        machine.say_xid(79)
    children = [machine.start() for machine in machines]
    for child in children:
        child.communicate(timeout=120)
    state = slurm.read()
    assert state["most_out"] == 4
    assert sum(row["state"] == "drained" for row in state["nodes"].values()) == 4
    assert state["reservations"] == {}


def test_a_node_that_somebody_drained_is_neither_drained_nor_resumed(node: Machine) -> None:
    node.slurm.set_node("n1", "drained", "provisioning of new disks")
    node.run()
    node.run("prove")
    assert not (node.folder / "asked").exists()
    assert node.state == {"state": "drained", "reason": "provisioning of new disks"}
    assert node.done() == ["not ours"]


def test_a_repaired_node_is_proved_and_resumed_and_its_old_xid_is_forgotten(node: Machine) -> None:
    node.say_xid(79, seconds=1)
    node.run()
    assert node.state["state"] == "drained"
    node.run()
    assert not (node.folder / "asked").exists(), "it was proved while it still looks bad"
    (node.folder / "kmsg").write_text("")
    node.run()
    assert (node.folder / "asked").exists()
    node.run("prove")
    assert node.state["state"] == "idle"
    assert node.done()[-1] == "resume"
    node.say_xid(79, seconds=1)
    node.run()
    assert node.state["state"] == "idle"
    node.say_xid(79, seconds=10**9)
    node.run()
    assert node.state["state"] == "drained"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '{\"result\": {\"ok\": false, \"counts\": {\"pass\": 5, \"fail\": 1}, \"groups\":"
         " [{\"check\": \"gpu.smi.ok\", \"seen\": \"it hangs\"}]}}'; exit 6", "gpu.smi.ok: it hangs"),
        ("echo '{\"result\": {\"ok\": true, \"counts\": {\"pass\": 0, \"fail\": 0}}}'", "0 passed"),
        ("exit 0", "no report"),
        ("sleep 60", "did not end within"),
    ],
)  # fmt: skip
def test_what_proves_nothing_resumes_nothing(node: Machine, script: str, why: str) -> None:
    node.slurm.set_node("n1", "drained", "provision: x")
    node.settings["prove_seconds"] = 1
    node.write_program("prove", script)
    node.run("prove")
    assert node.state["state"] == "drained"
    assert node.done() == ["not proved"]
    assert why in node.ledger()[0]["why"]


def test_a_node_with_jobs_left_is_not_proved(node: Machine) -> None:
    node.slurm.set_node("n1", "draining", "provision: x")
    node.run()
    assert not (node.folder / "asked").exists()


def test_a_node_that_is_drained_anew_during_its_proof_stays_drained(node: Machine) -> None:
    node.slurm.set_node("n1", "drained", "provision: x")
    answer = json.dumps({"result": PASSED})
    drained = "scontrol update NodeName=n1 State=DRAIN Reason='a person looks at it'"
    node.write_program("prove", f"{drained}; echo '{answer}'")
    node.run("prove")
    assert node.state["reason"] == "a person looks at it"
    assert node.done() == ["not ours"]


def test_a_node_that_flaps_stays_drained_after_three_returns(node: Machine) -> None:
    for _ in range(4):
        node.slurm.set_node("n1", "drained", "provision: x")
        node.run("prove")
    assert node.done() == ["resume"] * 3 + ["flapping"]
    assert node.state["state"] == "drained"


@pytest.mark.parametrize(("state", "told"), [("drained", "drain"), ("idle", "not done")])
def test_a_call_that_died_before_its_line_is_told_by_the_next(node: Machine, state: str, told: str) -> None:
    node.slurm.set_node("n1", state, "provision: x" if state == "drained" else "none")
    (node.folder / "state").mkdir()
    pending = {"what": "drain", "node": "n1", "why": "provision: x"}
    (node.folder / "state/state.json").write_text(json.dumps({"pending": pending}))
    node.run()
    node.run()
    assert node.done() == [told]
    assert node.ledger()[0]["settled"] is True


@pytest.mark.parametrize("mode", ["health", "apply"])
def test_a_step_on_a_node_that_was_removed_is_told_and_the_rest_is_done(node: Machine, mode: str) -> None:
    check = {"id": "gpu.lost", "status": "fail", "severity": "critical", "seen": "GPU 1 is lost"}
    report = node.folder / "report.json"
    report.write_text(json.dumps({"result": {"targets": [{"target": "slurm://n1", "ok": False, "checks": [check]}]}}))
    (node.folder / "state").mkdir()
    pending = {"what": "drain", "node": "n9", "why": "provision: x"}
    (node.folder / "state/state.json").write_text(json.dumps({"pending": pending}))
    node.say_xid(79)
    node.run(mode, *([str(report)] if mode == "apply" else []))
    assert node.done() == ["not done", "drain"]
    assert node.ledger()[0]["why"] == "provision: x; n9 is no longer there"


def test_dry_run_says_what_it_would_do_and_does_nothing(node: Machine) -> None:
    node.settings["jobs"] = "requeue"
    node.slurm.set(jobs={"7": {"nodes": ["n1"]}})
    node.say_xid(79)
    node.run("--dry-run")
    assert node.done() == ["would drain", "would requeue"]
    assert all(row["dry_run"] for row in node.ledger())
    assert {tuple(call[:2]) for call in node.slurm.read()["calls"] if call[0] == "scontrol"} == {
        ("scontrol", "--oneliner")
    }
    node.slurm.set_node("n1", "drained", "provision: x")
    node.run("prove", "--dry-run")
    assert node.state["state"] == "drained"


def test_prolog_ends_in_its_time_with_0_where_the_controller_hangs(node: Machine) -> None:
    node.settings["quick_seconds"] = 0.6
    node.slurm.set(sleep=30)
    node.say_xid(79)
    begun = time.monotonic()
    node.run("prolog")
    # Ten times its limit, and a third of what the controller takes.
    assert time.monotonic() - begun < 10
    assert node.done()[-1] in ("failed", "late")


def test_apply_drains_what_a_report_fails_within_the_limit(node: Machine) -> None:
    check = {"id": "gpu.lost", "status": "fail", "severity": "critical", "seen": "GPU 1 is lost"}
    rows = [{"target": f"slurm://n{index}", "ok": index > 3, "checks": [check]} for index in (1, 2, 3, 4)]
    report = node.folder / "report.json"
    report.write_text(json.dumps({"result": {"targets": rows}}))
    node.run("apply", str(report))
    assert [node.slurm.read()["nodes"][f"n{index}"]["state"] for index in (1, 2, 3, 4)] == [
        *("drained", "drained", "idle", "idle")
    ]
    assert node.done() == ["drain", "drain", "limit"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"prefix": "x"}, "`prefix`"),
        ({"limit_percent": 101}, "above 100"),
        ({"jobs": "kill"}, "`jobs`"),
        ({"engine": "pbs"}, "`engine`"),
        ({"prove": "provision verify"}, "`prove` is not a list"),
        ({"gpu": 8}, "`gpu` is not a setting"),
        ({"ledger": "ledger"}, "`ledger` is not an absolute path"),
    ],
)
def test_each_fault_of_the_settings_is_named_and_drains_nothing(
    node: Machine, change: dict[str, Any], problem: str
) -> None:
    node.settings.update(change)
    node.say_xid(79)
    assert problem in node.run()
    assert node.state["state"] == "idle"
    asked = subprocess.run(
        [sys.executable, str(PROGRAM), "--check", str(node.folder / "health.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 2
    assert problem in asked.stderr


@pytest.mark.parametrize("name", ["node_health.py", "health_loop.py"])
def test_the_oldest_python_reads_it(name: str) -> None:
    ast.parse(PROGRAM.with_name(name).read_text(encoding="utf-8"), feature_version=(3, 6))


def test_role_is_given_what_the_facts_say() -> None:
    kept = (PROGRAM.parent / "health_facts.json").read_text(encoding="utf-8")
    assert kept == render_health_facts(Matrix()), "run `make docs`"
    assert FACTS["xids"]["79"] == XID_79
    assert "13" not in FACTS["xids"]
