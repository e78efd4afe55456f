"""`provision verify --via slurm`: the nodes of a cluster in one step, against a stand-in for sinfo and srun."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import fake_srun
import machines
import pytest

from provision.probe.compose import CollectOptions, compose, new_nonce
from provision.probe.transports.slurm import ask_nodes

HEALTHY = machines.hgx_h100()
XID = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus."
ANSWERS = {"healthy": HEALTHY, "lost": machines.kernel_line(HEALTHY, XID), "cut": HEALTHY}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def make(states: dict[str, str], plan: dict[str, str] | None = None) -> Path:
        folder = tmp_path / "slurm"
        fake_srun.install(folder, states, ANSWERS, plan or {}, python=sys.executable)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return folder

    return make


def statuses(answer) -> dict[str, bool]:
    return {row["target"]: row["ok"] for row in answer.document["result"]["targets"]}


def seen(answer, target: str) -> str:
    row = next(row for row in answer.document["result"]["targets"] if row["target"] == target)
    return " ".join(check["seen"] for check in row["checks"] if check["status"] in ("fail", "unknown"))


def calls(folder: Path) -> list[list[str]]:
    path = folder / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_every_node_has_one_verdict_from_one_step(provision, cluster):
    folder = cluster({f"n{number}": "idle|none" for number in range(1, 6)}, {"n3": "lost"})
    answer = provision("verify", "--via", "slurm", "--only", "gpu", "--json")
    assert answer.code == 6
    assert statuses(answer) == {"n1": True, "n2": True, "n3": False, "n4": True, "n5": True}
    assert "Xid 79" in seen(answer, "n3")
    (call,) = calls(folder)
    assert {"--nodelist=n1,n2,n3,n4,n5", "--nodes=5", "--exclusive", "--label"} <= {*call}


def test_nodes_that_are_busy_drained_or_silent_are_no_pass_and_are_named_with_the_reason(provision, cluster):
    states = {
        "n1": "idle|none",
        "n2": "allocated|none",
        "n3": "drained|provision: A GPU fell off the PCIe bus",
        "n4": "idle*|Not responding",
        "n5": "idle|none",
        "n6": "idle|none",
    }
    folder = cluster(states, {"n5": "silent", "n6": "cut"})
    answer = provision("verify", "--via", "slurm", "--only", "gpu", "--json")
    assert statuses(answer) == {name: name == "n1" for name in states}
    assert "jobs are on it (allocated)" in seen(answer, "n2")
    assert "Slurm has it as drained: provision: A GPU fell off the PCIe bus" in seen(answer, "n3")
    assert "Slurm has it as idle*: Not responding" in seen(answer, "n4")
    assert "n5: task 1: Exited with exit code 1" in seen(answer, "n5")
    assert seen(answer, "n6")
    assert "--nodelist=n1,n5,n6" in calls(folder)[0]


def test_a_node_of_two_partitions_is_asked_once(provision, cluster):
    folder = cluster({"n1": "idle|none\nn1|idle|none"})
    answer = provision("verify", "--via", "slurm", "--only", "gpu", "--partition", "train", "--json")
    assert answer.code == 0
    assert "--partition=train" in calls(folder)[0]
    assert "--nodes=1" in calls(folder)[0]


def test_nothing_is_started_where_no_node_is_idle(provision, cluster):
    folder = cluster({"n1": "mixed|none"})
    assert provision("verify", "--via", "slurm", "--only", "gpu").code == 7
    assert calls(folder) == []


def test_nodes_do_not_wait_for_who_judges_them(cluster):
    names = [f"n{number}" for number in range(40)]
    cluster(dict.fromkeys(names, "idle|none"))
    options = CollectOptions(nonce=new_nonce())
    answers = []
    # The step has a second, and its nodes say more than a pipe holds; the judgement of all takes four.
    for name, answer, why in ask_nodes(names, compose(options), seconds=-179):
        time.sleep(0.1)
        answers.append((name, bool(answer), why))
    assert answers == [(name, True, "") for name in names]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("n1;reboot",), "is not a node of Slurm"),
        (("--nodelist=x",), "unknown flag"),
        (("--identity", "/tmp/key"), "--identity has no effect with --via slurm"),
        (("--pytest",), "--pytest reaches hosts itself"),
    ],
)
def test_each_fault_is_named(provision, cluster, words, said):
    folder = cluster({"n1": "idle|none"})
    answer = provision("verify", "--via", "slurm", *words)
    assert answer.code == 2
    assert said in answer.err
    assert calls(folder) == []


def test_a_partition_without_slurm_is_refused(provision):
    answer = provision("verify", "--partition", "train")
    assert answer.code == 2
    assert "--partition has no effect without --via slurm" in answer.err


def test_a_cluster_that_does_not_answer_ends_with_7(provision, cluster, monkeypatch, tmp_path):
    cluster({"n1": "idle|none"})
    monkeypatch.setenv("SINFO_STATUS", "1")
    assert provision("verify", "--via", "slurm").code == 7
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = provision("verify", "--via", "slurm")
    assert answer.code == 7
    assert "`sinfo` is not on this machine" in answer.err
