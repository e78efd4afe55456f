"""`provision fleet health` as people run it, with stand-ins for kubectl, for Prometheus and for ssh."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fake_kubectl import FakeKubectl
from fake_prometheus import answering

from provision.matrix.load import Matrix


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    found = FakeKubectl(tmp_path / "cluster", {"H100": ["n1", "n2", "n3", "n4"]})
    monkeypatch.setenv("PATH", f"{found.programs}:/usr/bin:/bin")
    return found


def test_a_pass_says_what_it_did_and_ends_with_6_while_a_bad_node_is_in_service(provision, cluster, tmp_path):
    words = ("fleet", "health", "--state", tmp_path / "state")
    assert provision(*words).out == "nothing to do\n"
    cluster.say("n1", message="A GPU is lost")
    answer = provision(*words, "--dry-run")
    assert (answer.code, answer.out.split()[:2]) == (0, ["would", "drain"])
    assert cluster.out() == []
    answer = provision(*words, "--context", "lab")
    assert answer.code == 0
    assert answer.out.startswith("drain  n1  provision: A GPU is lost\n")
    assert all(call[:2] == ["--context", "lab"] for call in cluster.read()["calls"][-5:])
    cluster.say("n2")
    answer = provision(*words, "--json", "--no-proof")
    assert answer.code == 6
    assert [row["what"] for row in answer.document["result"]["done"]] == ["limit"]
    assert len((tmp_path / "state" / "ledger.jsonl").read_text().splitlines()) == 3


def test_critical_alerts_that_fire_are_verdicts_and_those_of_two_clusters_need_a_name(provision, cluster, tmp_path):
    alert = {"alertname": "GpuLost", "severity": "critical", "alertstate": "firing", "node": "n3", "gpu": "1"}
    other = {**alert, "cluster": "b", "node": "n4"}
    now = time.time()

    def answer(query: str) -> list[dict[str, object]]:
        name = "ALERTS_FOR_STATE" if "FOR_STATE" in query else "ALERTS"
        return [{"metric": {"__name__": name, **row}, "value": [now, str(now)]} for row in rows]

    rows = [alert, {**alert, "alertname": "GpuExporterDown", "node": "n2"}]
    with answering(answer) as address:
        words = ("fleet", "health", "--state", tmp_path / "state", "--prometheus", address)
        done = provision(*words)
        assert done.out.startswith("drain  n3  provision: A GPU fell off the PCIe bus: GPU 1\n")
        row = json.loads((tmp_path / "state" / "ledger.jsonl").read_text().splitlines()[0])
        assert row["repair"].startswith(Matrix().diagnoses["gpu.lost"].fix[0])
        assert f"\nrepair of n3: {row['repair']}\n" in done.out
        rows.append(other)
        refused = provision(*words)
        assert refused.code == 2
        assert "alerts of 2 clusters fire" in refused.err
        answer = provision(*words, "--cluster", "b", "--limit-percent", "100", "--no-proof")
        assert (answer.code, answer.out.split()[:2]) == (0, ["drain", "n4"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "the folder of the ledger is missing"),
        (("--state", "s", "--cluster", "a"), 2, "--cluster has no effect without --prometheus"),
        (("--state", "s", "--limit-percent", "101"), 2, "--limit-percent"),
        (("--state", "s", "--pool", "-x y"), 2, "--pool"),
        (("--state", "/proc/s"), 2, "cannot be written"),
        (("--state", "s", "--report", "none.json"), 2, "is not a report"),
        (("--state", "s", "--alertmanager", "https://a.example"), 2, "no effect without a list of hosts"),
        (("--state", "s", "--hosts", "hosts", "--pool", "rack"), 2, "--pool has no effect on hosts"),
        (("--state", "s", "--hosts", "hosts", "--jobs", "requeue"), 2, "nothing would start a job on another host"),
        (("--state", "s", "--hosts", "hosts", "--alertmanager", "a.example"), 2, "not an address of an Alertmanager"),
        (("--state", "s", "--hosts", "pods"), 2, "`kubectl://train` is not reached over ssh"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is(
    provision, cluster, tmp_path, monkeypatch, words, code, said
):
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("n1\n", encoding="utf-8")
    Path("pods").write_text("kubectl://train\n", encoding="utf-8")
    answer = provision("fleet", "health", *words)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert cluster.read()["calls"] == []


def test_without_kubectl_or_a_cluster_it_ends_with_7(provision, cluster, tmp_path, monkeypatch):
    words = ("fleet", "health", "--state", tmp_path / "state")
    cluster.set(fails={"get": "Unable to connect to the server"})
    answer = provision(*words)
    assert answer.code == 7
    assert "Unable to connect to the server" in answer.err
    assert json.loads((tmp_path / "state" / "ledger.jsonl").read_text())["what"] == "failed"
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = provision(*words)
    assert answer.code == 7
    assert "kubectl, which is not here" in answer.err


def test_hosts_behind_ssh_are_kept_in_a_file_and_proved_over_ssh(provision, tmp_path, monkeypatch):
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    # Each host is this machine: what is to be run there is the last word.
    ssh.write_text('#!/bin/bash\necho "$@" >> "$SSH_CALLS"\nexec sh -c "${@: -1}"\n', encoding="utf-8")
    ssh.chmod(0o755)
    calls = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    monkeypatch.setenv("SSH_CALLS", str(calls))
    hosts, report = tmp_path / "hosts", tmp_path / "report.json"
    hosts.write_text("root@n1\nn2\nn3\n", encoding="utf-8")
    check = {"id": "gpu.lost", "status": "fail", "severity": "critical", "seen": "GPU 1 is lost"}
    report.write_text(json.dumps({"targets": [{"target": "root@n1", "checks": [check]}]}), encoding="utf-8")
    words = ("fleet", "health", "--state", tmp_path / "state", "--hosts", hosts)
    answer = provision(*words, "--report", report)
    assert (answer.code, answer.out.split()[:2]) == (0, ["drain", "n1"]), answer.err
    held = json.loads((tmp_path / "state" / "maintenance.json").read_text())
    assert held["hosts"]["n1"]["reason"] == "provision: gpu.lost: GPU 1 is lost"
    assert not calls.exists()
    # A machine without a GPU proves nothing.
    answer = provision(*words)
    assert (answer.code, answer.out.split()[:3]) == (0, ["not", "proved", "n1"])
    said = calls.read_text()
    assert "-l root -- n1 exec sh -s" in said
    assert "-- n2 " not in said
    assert json.loads((tmp_path / "state" / "maintenance.json").read_text()) == held
