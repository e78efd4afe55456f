"""The health loop on a controller, with Kubernetes behind a stand-in for kubectl that keeps a state of nodes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_kubectl import FakeKubectl

from provision.errors import ActionFailedError, MissingDependencyError, UsageError
from provision.fleet.health import Verdict, load_loop, read_reports, run_pass
from provision.fleet.kubernetes import Kubernetes
from provision.matrix.load import Matrix

MATRIX = Matrix()
PASSED = (0, json.dumps({"result": {"ok": True, "counts": {"pass": 9, "fail": 0}}}), "")
FAILED = (6, json.dumps({"result": {"ok": False, "counts": {"pass": 8, "fail": 1}, "groups": []}}), "")


class Site:
    """A cluster and the folder of a controller."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.cluster = FakeKubectl(folder / "cluster", {"H100": names})
        self.folder = folder / "state"
        self.settings = {"state": str(self.folder), "limit_percent": 50, "returns_per_day": 3, "jobs": "keep"}
        self.proved: list[str] = []
        self.answer: tuple[int | None, str, str] = PASSED

    def engine(self) -> Kubernetes:
        return Kubernetes(MATRIX)

    def prove(self, node: str) -> tuple[int | None, str, str]:
        self.proved.append(node)
        return self.answer

    def run(self, *verdicts: Verdict, is_dry: bool = False) -> list[str]:
        engine = self.engine()
        rows = run_pass(
            engine, self.settings, lambda: [*verdicts, *engine.find_conditions()], self.prove, is_dry=is_dry
        )
        return [row["what"] for row in rows]

    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "ledger.jsonl").read_text().splitlines()]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Site]:
    def site(count: int = 4) -> Site:
        found = Site(tmp_path, [f"n{index}" for index in range(1, count + 1)])
        monkeypatch.setenv("PATH", f"{found.cluster.programs}:/usr/bin:/bin")
        return found

    return site


def test_a_condition_takes_a_node_out_with_its_message_and_a_proof_puts_it_back(make) -> None:
    site = make()
    site.cluster.change("n1", taints=[{"key": "kept", "effect": "NoSchedule"}])
    site.cluster.say("n1", message="The driver lost its connection to a GPU (Xid 79)")
    assert site.run() == ["drain"]
    node = site.cluster.read()["nodes"]["n1"]
    assert [row["key"] for row in node["spec"]["taints"]] == ["kept", "dev.provision/unhealthy"]
    assert "unschedulable" not in node["spec"]
    reason = json.loads(node["metadata"]["annotations"]["dev.provision/unhealthy"])["reason"]
    assert reason == "provision: The driver lost its connection to a GPU (Xid 79)"
    assert site.ledger()[0]["why"] == reason
    assert site.ledger()[0]["who"]["program"] == "provision fleet health"
    assert site.run() == []
    assert site.proved == [], "it was proved while it still looks bad"
    site.cluster.say("n1", "False")
    assert site.run() == ["resume"]
    node = site.cluster.read()["nodes"]["n1"]
    assert node["spec"]["taints"] == [{"key": "kept", "effect": "NoSchedule"}]
    assert node["metadata"]["annotations"] == {"kept": "yes"}
    assert site.cluster.read()["leases"]["provision-health"]["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("answer", [FAILED, (None, "", "no Pod"), (0, "", ""), (0, '{"result": {"ok": true}}', "")])
def test_what_proves_nothing_puts_nothing_back(make, answer) -> None:
    site = make()
    site.cluster.say("n1")
    site.run()
    site.cluster.say("n1", "False")
    site.answer = answer
    assert site.run() == ["not proved"]
    assert site.cluster.out() == ["n1"]


def test_the_limit_holds_while_all_nodes_are_bad(make) -> None:
    site = make(10)
    site.settings["limit_percent"] = 20
    for index in range(1, 11):
        site.cluster.say(f"n{index}")
    assert site.run(is_dry=True) == ["would drain"] * 2 + ["limit"] * 8
    assert site.cluster.out() == []
    assert site.run() == ["drain"] * 2 + ["limit"] * 8
    assert site.cluster.read()["most_out"] == 2
    assert "H100: 2 of 10 nodes are out, 20 % are 2" in site.ledger()[-1]["why"]


def test_nodes_that_are_out_for_other_reasons_count_and_other_pools_do_not(make, tmp_path, monkeypatch) -> None:
    site = make()
    site.cluster.change("n2", unschedulable=True)
    nodes = site.cluster.read()["nodes"]
    nodes["n3"]["status"]["conditions"][0]["status"] = "Unknown"
    nodes["n4"]["metadata"]["labels"]["nvidia.com/gpu.product"] = "A100"
    site.cluster.set(nodes=nodes)
    site.cluster.say("n1")
    site.cluster.say("n4")
    assert sorted(site.run()) == ["drain", "limit"]
    assert site.cluster.out() == ["n4"]


def test_a_node_that_a_person_cordoned_is_neither_taken_out_nor_put_back(make) -> None:
    site = make()
    site.cluster.change("n1", unschedulable=True)
    before = site.cluster.read()["nodes"]["n1"]
    site.run(Verdict(node="n1", id="gpu.lost", sentence="GPU 1 is lost", since=1.0))
    assert site.cluster.read()["nodes"]["n1"] == before
    site.cluster.say("n2")
    assert site.run() == ["drain"]
    site.cluster.change("n2", unschedulable=True)
    site.cluster.say("n2", "False")
    assert site.run() == []
    assert site.cluster.out() == ["n2"]
    assert site.proved == []


def test_a_node_that_a_person_cordons_during_its_proof_stays_out(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.run()
    site.cluster.say("n1", "False")

    def prove(node: str) -> tuple[int | None, str, str]:
        site.cluster.change(node, unschedulable=True)
        return PASSED

    site.prove = prove
    assert site.run() == ["not ours"]
    assert site.cluster.out() == ["n1"]


def test_an_old_verdict_does_not_take_a_proved_node_out_again_and_a_new_one_does(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.run()
    site.cluster.say("n1", "False")
    site.run()
    # The log of the kernel still tells of it.
    site.cluster.say("n1")
    assert site.run() == []
    site.cluster.say("n1", when=(datetime.now(UTC) + timedelta(seconds=5)).isoformat())
    assert site.run() == ["drain"]


def test_a_verdict_that_flaps_leaves_the_node_out_after_three_returns(make) -> None:
    site = make()
    done = []
    for times in range(5):
        site.cluster.say("n1", when=(datetime.now(UTC) + timedelta(minutes=times)).isoformat())
        done += site.run()
        site.cluster.say("n1", "False")
        done += site.run()
    assert done == ["drain", "resume"] * 3 + ["drain", "flapping", "flapping"]
    assert site.cluster.out() == ["n1"]
    assert len(site.proved) == 3


@pytest.mark.parametrize("said", ["Unable to connect to the server: dial tcp", "error: You must be logged in"])
def test_a_server_that_does_not_answer_stops_the_pass_before_anything_is_done(make, said) -> None:
    site = make()
    site.cluster.say("n1")
    site.cluster.set(fails={"get": said})
    with pytest.raises(MissingDependencyError, match="nothing was done") as caught:
        site.run()
    assert said in caught.value.because[0]
    assert [(row["what"], row["why"]) for row in site.ledger()] == [("failed", said)]
    assert site.cluster.out() == []


def test_a_server_that_stops_answering_before_anything_is_done_is_told(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.cluster.set(fails={"get": "timed out"}, answers={"get": 1})
    with pytest.raises(MissingDependencyError, match="nothing was done"):
        site.run()
    assert [(row["what"], row["why"]) for row in site.ledger()] == [("failed", "timed out")]
    assert site.cluster.out() == []


def test_a_server_that_stops_answering_after_a_drain_leaves_the_rows_of_what_was_done(make) -> None:
    site = make()
    site.cluster.say("n1")
    # Nodes twice, the lock, nodes, and the one that is drained.
    site.cluster.set(fails={"get": "timed out"}, answers={"get": 5})
    assert site.run() == ["drain", "failed"]
    assert site.ledger()[-1]["why"] == "timed out"
    assert site.cluster.out() == ["n1"]


def test_a_patch_that_is_refused_is_told_and_leaves_nothing_half_done(make) -> None:
    site = make()
    site.cluster.say("n1")
    before = site.cluster.read()["nodes"]
    site.cluster.set(fails={"patch": 'nodes "n1" is forbidden: User "x" cannot patch resource "nodes"'})
    assert site.run() == ["failed"]
    assert "is forbidden" in site.ledger()[0]["why"]
    state = site.cluster.read()
    assert state["nodes"] == before
    assert state["leases"]["provision-health"]["spec"]["holderIdentity"] == ""
    site.cluster.set(fails={})
    # The next pass says what became of the one that failed, and does it.
    assert site.run() == ["not done", "drain"]


@pytest.mark.parametrize(("is_done", "told"), [(True, ["drain"]), (False, ["not done", "drain"])])
def test_a_pass_that_dies_between_action_and_ledger_is_told_by_the_next(make, monkeypatch, is_done, told) -> None:
    site = make()
    site.cluster.say("n1")
    real = Kubernetes.drain

    def die(self: Kubernetes, name: str, reason: str) -> None:
        if is_done:
            real(self, name, reason)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Kubernetes, "drain", die)
        with pytest.raises(KeyboardInterrupt):
            site.run()
    assert not (site.folder / "ledger.jsonl").exists()
    assert site.run() == told
    assert site.ledger()[0]["settled"] is True
    assert site.cluster.out() == ["n1"]
    assert site.run() == []


def test_a_node_that_is_removed_before_its_step_is_settled_does_not_stop_the_loop(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.cluster.set(fails={"patch": "the connection was lost"})
    site.run()
    nodes = site.cluster.read()["nodes"]
    del nodes["n1"]
    site.cluster.set(fails={}, nodes=nodes)
    site.cluster.say("n2")
    assert site.run() == ["not done", "drain"]
    assert site.ledger()[-2]["why"].endswith("; n1 is no longer there")
    assert site.run() == []


def test_a_step_on_a_node_that_is_there_and_cannot_be_asked_about_stays_to_be_settled(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.cluster.set(fails={"patch": "the connection was lost"})
    site.run()
    # The second question of the pass is what settles the step.
    site.cluster.set(fails={"get": "timed out"}, answers={"get": 1})
    with pytest.raises(MissingDependencyError, match="nothing was done"):
        site.run()
    site.cluster.set(fails={})
    assert site.run() == ["not done", "drain"]


def test_two_passes_at_once_with_one_folder_are_refused(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.run()
    site.cluster.say("n1", "False")
    begun, go_on = threading.Event(), threading.Event()

    def prove(_node: str) -> tuple[int | None, str, str]:
        begun.set()
        go_on.wait(60)
        return PASSED

    site.prove = prove
    thread = threading.Thread(target=site.run)
    thread.start()
    try:
        assert begun.wait(60)
        with pytest.raises(ActionFailedError, match="another"):
            site.run()
    finally:
        go_on.set()
        thread.join()


def test_two_controllers_take_turns_by_a_lease_and_a_dead_one_loses_it(make) -> None:
    site = make()
    first, second = site.engine(), site.engine()
    assert first.take_lock("n1")
    assert not second.take_lock("n1")
    first.give_lock()
    assert second.take_lock("n1")
    leases = site.cluster.read()["leases"]
    leases["provision-health"]["spec"]["renewTime"] = (datetime.now(UTC) - timedelta(minutes=3)).isoformat()
    site.cluster.set(leases=leases)
    assert first.take_lock("n1")
    # The one that lost it cannot give it away.
    with pytest.raises(load_loop().EngineError):
        second.give_lock()


@pytest.mark.parametrize(
    ("jobs", "left"), [("keep", {"a", "bare", "agent", "web"}), ("requeue", {"bare", "agent", "web"})]
)
def test_pods_with_gpus_are_kept_or_evicted_by_setting(make, jobs, left) -> None:
    site = make()
    site.settings["jobs"] = jobs
    site.cluster.add_pod("a", "n1")
    site.cluster.add_pod("bare", "n1", owner="")
    site.cluster.add_pod("agent", "n1", owner="DaemonSet")
    site.cluster.add_pod("web", "n1", gpus=0)
    site.cluster.say("n1")
    assert site.run() == ["drain", *(["requeue", "kept"] if jobs == "requeue" else [])]
    assert {name.partition("/")[2] for name in site.cluster.read()["pods"]} == left
    site.cluster.say("n1", "False")
    # A Pod with GPUs is left, so that nothing is proved.
    assert site.run() == []
    assert site.proved == []


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(make) -> None:
    site = make()
    site.settings["jobs"] = "requeue"
    site.cluster.add_pod("a", "n1")
    site.cluster.say("n1")
    before = site.cluster.read()
    assert site.run(is_dry=True) == ["would drain", "would requeue"]
    after = site.cluster.read()
    assert {**after, "calls": []} == {**before, "calls": []}
    assert all(row["dry_run"] for row in site.ledger())
    assert not (site.folder / "state.json").exists()
    site.run()
    site.cluster.set(pods={})
    site.cluster.say("n1", "False")
    assert site.run(is_dry=True) == ["would prove"]
    assert site.proved == []


def test_a_report_takes_out_what_it_fails_and_names_what_is_no_node(make, tmp_path) -> None:
    site = make()
    check = {"id": "gpu.lost", "status": "fail", "severity": "critical", "seen": "GPU 1 is lost", "remedy": "Restart."}
    rows = [{"target": f"ssh://root@{name}", "ok": name == "n2", "checks": [check]} for name in ("n1", "n2", "n9")]
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"result": {"targets": rows}}))
    assert site.run(*read_reports([path])) == ["drain", "failed"]
    assert site.cluster.out() == ["n1"]
    assert site.ledger()[0]["repair"] == "Restart."
    assert "n9 is not a node of a pool with GPUs" in site.ledger()[1]["why"]
    path.write_text("[]")
    with pytest.raises(UsageError, match="is not a report"):
        read_reports([path])


def test_a_node_is_proved_from_a_pod_on_it_that_has_all_of_its_gpus(make) -> None:
    site = make()
    container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "17Gi"}}}
    template = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}
    site.cluster.set(templates={"provision-prove": template})
    status, out, said = site.engine().run_proof("n2")
    # The stand-in has no `exec`, so that the real `provision verify` reached no target.
    assert status != 0
    assert load_loop().judge_proof(status, out, said)
    state = site.cluster.read()
    spec = state["proof"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8", "memory": "17Gi"}
    assert any("exec" in words for words in state["calls"])
    assert state["pods"] == {}


def test_a_node_that_lost_a_gpu_while_it_was_out_is_not_proved_by_the_others(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.run()
    site.cluster.say("n1", "False")
    nodes = site.cluster.read()["nodes"]
    nodes["n1"]["status"]["capacity"]["nvidia.com/gpu"] = "7"
    container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    site.cluster.set(nodes=nodes, templates={"provision-prove": {"template": {"spec": {"containers": [container]}}}})
    site.prove = lambda node: site.engine().run_proof(node)
    assert site.run() == ["not proved"]
    assert site.ledger()[-1]["why"].startswith("7 of 8 GPUs")
    assert site.cluster.out() == ["n1"]
    assert "proof" not in site.cluster.read()


def test_without_the_template_nothing_is_proved_and_the_reason_is_told(make) -> None:
    site = make()
    site.cluster.say("n1")
    site.run()
    site.cluster.say("n1", "False")
    site.prove = lambda node: site.engine().run_proof(node)
    assert site.run() == ["failed"]
    assert 'podtemplates "provision-prove" not found' in site.ledger()[-1]["why"]
