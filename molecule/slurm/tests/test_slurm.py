"""A node that turns bad is drained, its job goes elsewhere, and it comes back after proof; faults on the way there.

Device nodes, the kernel's log and nvidia-smi are stand-ins; slurmctld, slurmd, the jobs and `provision verify` are
real. The tests follow one another: each leaves three healthy nodes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

NODES = ("n1", "n2", "n3")
REASON = "provision: The driver lost its connection to a GPU (Xid 79)"
XID = "4,1,{seconds}000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus."
PATIENCE_SECONDS = 60
JOB = """#!/bin/sh
#SBATCH --requeue --gpus-per-node=2 --nodes=1 --output=/dev/null
# It works until its node is lost, and ends where it is put then.
[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 0
sleep 600
"""


@pytest.fixture(scope="module")
def controller(node_named: Callable[[str], Any]) -> Any:
    return node_named("ctl")


@pytest.fixture(scope="module")
def nodes(node_named: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
    found = {name: node_named(name) for name in NODES}
    yield found
    for node in found.values():
        # With the first kind of control groups Slurm's are beside those of the container, and outlive it.
        node.run("systemctl stop slurmd; find /sys/fs/cgroup/*/slurm_$(hostname) -depth -type d -exec rmdir {} +")


def states(controller: Any) -> dict[str, tuple[str, str]]:
    """Node → state and reason."""
    lines = controller.say("sinfo --noheader --Node --format='%N|%T|%E'").splitlines()
    return {name: (state, reason) for name, state, reason in (line.split("|", 2) for line in lines)}


def wait(what: Callable[[], Any], why: str) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.5)
    raise AssertionError(f"not within {PATIENCE_SECONDS} s: {why}")


def spoil(node: Any) -> None:
    """Let the kernel of a node log what it logs when a GPU is lost, later than anything before."""
    line = XID.format(seconds=int(time.monotonic()) + 1000000)
    node.say('echo "$1" >>/opt/standin/kmsg', line)


def mend(node: Any) -> None:
    node.say(": >/opt/standin/kmsg")


def ledger(node: Any) -> list[dict[str, Any]]:
    done = node.run("cat /var/log/provision/health.jsonl")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_every(controller: Any, seconds: int) -> None:
    change = f"s/^HealthCheckInterval=.*/HealthCheckInterval={seconds}/"
    controller.say('sed -i "$1" /etc/slurm/slurm.conf && scontrol reconfigure', change)


def all_idle(controller: Any) -> bool:
    return all(state == "idle" for state, _ in states(controller).values())


@pytest.fixture(scope="module")
def turned(controller: Any, nodes: dict[str, Any]) -> dict[str, Any]:
    """A job, the node it ran on, and what became of both once that node turned bad."""
    wait(lambda: all_idle(controller), "all nodes are idle")
    controller.write("/root/job.sh", JOB)
    job = controller.say("cd /tmp && sbatch --parsable /root/job.sh")
    first = wait(lambda: controller.say(f"squeue --noheader --states=R --jobs={job} --format=%N"), "the job runs")
    spoil(nodes[first])
    wait(lambda: states(controller)[first][0] == "drained", f"{first} is drained")
    at_drain = states(controller)
    # What Slurm still knows of a job is gone some time after its end, and no sooner than this.
    shown = wait(lambda: done_words(controller, job), "the job ends elsewhere")
    return {"job": job, "first": first, "states": at_drain, "shown": shown, "ledger": ledger(nodes[first])}


def done_words(controller: Any, job: str) -> dict[str, str]:
    words = controller.say(f"scontrol --oneliner show job {job}").split()
    found = dict(word.split("=", 1) for word in words if "=" in word)
    return found if found["JobState"] == "COMPLETED" else {}


def test_every_node_has_its_gpus(controller: Any) -> None:
    shown = controller.say("sinfo --noheader --Node --format='%N %G'").splitlines()
    assert sorted(shown) == [f"{name} gpu:standin:2" for name in NODES]


def test_a_job_can_open_the_gpus_that_it_was_given_and_no_other(controller: Any) -> None:
    script = 'for index in 0 1; do (: </dev/nvidia$index) 2>&1; done; echo "$CUDA_VISIBLE_DEVICES"; true'
    said = controller.say('cd /tmp && srun --nodes=1 --gpus=1 sh -c "$1"', script)
    # A device that may be opened has no driver behind it.
    assert "/dev/nvidia0: No such device or address" in said
    assert "/dev/nvidia1: Operation not permitted" in said
    assert said.splitlines()[-1] == "0"


def test_a_bad_node_is_drained_with_doctor_s_sentence(turned: dict[str, Any]) -> None:
    assert turned["states"][turned["first"]] == ("drained", REASON)
    assert all(state != "drained" for name, (state, _) in turned["states"].items() if name != turned["first"])


def test_its_job_is_requeued_and_ends_elsewhere(turned: dict[str, Any]) -> None:
    assert turned["shown"]["Restarts"] == "1"
    assert turned["shown"]["NodeList"] in set(NODES) - {turned["first"]}


def test_the_ledger_says_who_did_what_why_and_when(turned: dict[str, Any]) -> None:
    rows = [row for row in turned["ledger"] if row["what"] in ("drain", "requeue")]
    assert [(row["what"], row["node"]) for row in rows] == [(what, turned["first"]) for what in ("drain", "requeue")]
    assert rows[0]["why"] == REASON
    assert rows[1]["job"] == turned["job"]
    assert {row["who"]["mode"] for row in rows} == {"health"}


def test_a_node_that_looks_well_and_cannot_be_proved_stays_drained(
    controller: Any, nodes: dict[str, Any], turned: dict[str, Any]
) -> None:
    node = nodes[turned["first"]]
    node.write("/opt/standin/expect.toml", 'os = "debian13"\n')
    mend(node)
    wait(lambda: any(row["what"] == "not proved" for row in ledger(node)), "a proof fails")
    assert "host.os" in next(row["why"] for row in ledger(node) if row["what"] == "not proved")
    assert states(controller)[node.name] == ("drained", REASON)


def test_a_repaired_node_is_proved_and_takes_jobs_again(
    controller: Any, nodes: dict[str, Any], turned: dict[str, Any]
) -> None:
    node = nodes[turned["first"]]
    node.write("/opt/standin/expect.toml", 'os = "debian12"\n')
    wait(lambda: states(controller)[node.name] == ("idle", "none"), f"{node.name} is back")
    assert ledger(node)[-1]["what"] == "resume"
    assert controller.say(f"cd /tmp && srun --nodelist={node.name} --gpus=2 hostname") == node.name


def test_a_node_that_a_person_drained_stays_drained(controller: Any, nodes: dict[str, Any]) -> None:
    controller.say("scontrol update NodeName=n1 State=DRAIN Reason='new disks'")
    before = [row["what"] for row in ledger(nodes["n1"])]
    # Two health checks and more.
    time.sleep(12)
    assert states(controller)["n1"] == ("drained", "new disks")
    after = [row["what"] for row in ledger(nodes["n1"])]
    assert after == before
    controller.say("scontrol update NodeName=n1 State=RESUME")


def test_prolog_requeues_a_job_before_it_starts_on_a_bad_node(controller: Any, nodes: dict[str, Any]) -> None:
    # Between two health checks: the prolog is what sees it.
    check_every(controller, 3600)
    time.sleep(6)
    spoil(nodes["n2"])
    started = "/opt/standin/started"
    controller.write("/root/first.sh", f"#!/bin/sh\nhostname >>{started}\n")
    job = controller.say("cd /tmp && sbatch --parsable --requeue --output=/dev/null --nodelist=n2 /root/first.sh")
    wait(lambda: states(controller)["n2"] == ("drained", REASON), "n2 is drained by the prolog")
    controller.say(f"scontrol update JobId={job} ReqNodeList=")
    shown = wait(lambda: done_words(controller, job), "the job ends elsewhere")
    assert shown["NodeList"] != "n2"
    assert not nodes["n2"].has(started), "it was started on the bad node"
    assert [row["who"]["mode"] for row in ledger(nodes["n2"])[-2:]] == ["prolog", "prolog"]


def test_a_prolog_that_hangs_lets_the_job_start(controller: Any, nodes: dict[str, Any]) -> None:
    nodes["n3"].say("rm -f /opt/standin/report.json && mkfifo /opt/standin/report.json")
    assert controller.say("cd /tmp && srun --nodelist=n3 hostname") == "n3"
    nodes["n3"].say("rm /opt/standin/report.json")
    assert ledger(nodes["n3"])[-1]["what"] == "late"
    assert states(controller)["n3"][0] in ("idle", "mixed", "completing")


def test_the_limit_holds_while_all_nodes_are_bad(controller: Any, nodes: dict[str, Any]) -> None:
    mend(nodes["n2"])
    nodes["n2"].say("systemctl start provision-prove.service")
    wait(lambda: all_idle(controller), "all nodes are idle")
    for node in nodes.values():
        spoil(node)
    check_every(controller, 5)
    wait(lambda: not all_idle(controller), "one is drained")
    seen = set()
    for _ in range(12):
        seen.add(sum(state.startswith("drain") for state, _ in states(controller).values()))
        time.sleep(1)
    assert seen == {1}
    told = [row["why"] for node in nodes.values() for row in ledger(node) if row["what"] == "limit"]
    assert any("gpu: 1 of 3 nodes are out, 10 % are 1" in why for why in told)


def test_what_the_controller_was_not_there_to_hear_is_done_when_it_is_back(
    controller: Any, nodes: dict[str, Any]
) -> None:
    for node in nodes.values():
        mend(node)
    wait(lambda: all_idle(controller), "all nodes are back")
    controller.say("systemctl stop slurmctld")
    spoil(nodes["n3"])
    nodes["n3"].say("/usr/local/lib/provision/node_health.py health")
    assert ledger(nodes["n3"])[-1]["what"] == "failed"
    controller.say("systemctl start slurmctld")
    wait(lambda: nodes["n3"] and controller.run("sinfo").returncode == 0, "the controller answers")
    wait(lambda: states(controller)["n3"] == ("drained", REASON), "n3 is drained")
    assert controller.say("scontrol --oneliner show reservation") == "No reservations in the system"
    mend(nodes["n3"])
    wait(lambda: all_idle(controller), "all nodes are back")


def test_verify_has_slurm_ask_every_node_that_is_idle(controller: Any) -> None:
    controller.say("scontrol update NodeName=n3 State=DRAIN Reason='new disks'")
    done = controller.run("cd /tmp && provision verify --via slurm --gpus 0 --expect /opt/standin/expect.toml --json")
    controller.say("scontrol update NodeName=n3 State=RESUME")
    assert done.returncode == 6, done.stderr
    targets = {row["target"]: row for row in json.loads(done.stdout)["result"]["targets"]}
    assert {name: row["ok"] for name, row in targets.items()} == {"n1": True, "n2": True, "n3": False}
    passed = {check["id"]: check["seen"] for check in targets["n2"]["checks"] if check["status"] == "pass"}
    assert passed["host.os"].startswith("Debian GNU/Linux 12")
    assert "drained: new disks" in targets["n3"]["checks"][0]["seen"]


TRAINING = """import os, signal, sys, time
def save(*_):
    open("/opt/standin/saved", "w").close()
    sys.exit(0)
if not os.environ.get("SLURM_RESTART_COUNT"):
    signal.signal(signal.SIGUSR1, save)
    open("/opt/standin/trains", "w").close()
    time.sleep(300)
"""


def test_slurm_takes_the_batch_files_and_a_job_that_is_told_to_save_goes_on_later(
    controller: Any, nodes: dict[str, Any]
) -> None:
    wait(lambda: all_idle(controller), "all nodes are idle")
    words = "--torch 2.8 --gpu h100 --runtime host --gpus 2 --gpu-type standin --time 10 -o jobs -- /root/train.py"
    said = controller.say(f"cd /root && provision slurm --nodes 3 --test-only {words}")
    assert "Slurm would start train.sbatch: Job" in said
    assert "Slurm would start bench.sbatch: Job" in said
    refused = controller.run(f"cd /root && provision slurm --test-only --partition nowhere {words}")
    assert refused.returncode == 6
    assert "Slurm would not take train.sbatch: invalid partition specified: nowhere" in refused.stdout
    controller.say(f"cd /root && provision slurm {words}")
    for node in nodes.values():
        node.write("/root/train.py", TRAINING)
    job = controller.say("cd /root && sbatch --parsable --output=/dev/null --chdir=/tmp jobs/train.sbatch")
    name = wait(lambda: controller.say(f"squeue --noheader --states=R --jobs={job} --format=%N"), "the job runs")
    wait(lambda: nodes[name].has("/opt/standin/trains"), "it trains")
    # What Slurm does by itself some time before the limit.
    controller.say(f"scancel --signal=USR1 --batch {job}")
    shown = wait(lambda: done_words(controller, job), "the job was requeued and has ended")
    assert shown["Restarts"] == "1"
    assert nodes[name].has("/opt/standin/saved")


def test_a_second_run_changes_nothing(play: Callable[..., Any]) -> None:
    outcome = play("gpu-slurm.yml").expect_success()
    assert {name: outcome.changed(name) for name in ("ctl", *NODES)} == {name: [] for name in ("ctl", *NODES)}
    assert {outcome.hosts[name]["modules"] for name in NODES} == {1}
    assert outcome.hosts["ctl"]["modules"] == 2


def test_removal_leaves_nothing(controller: Any, nodes: dict[str, Any], play: Callable[..., Any]) -> None:
    play("gpu-slurm-remove.yml").expect_success()
    for node in (controller, *nodes.values()):
        left = (
            "find /etc/slurm /etc/munge /usr/local/lib/provision /etc/provision /var/lib/provision /var/log/provision"
        )
        assert node.run(f"{left} 2>/dev/null").stdout == ""
        assert node.say("dpkg-query -W -f '${Package} ${Status}\\n' | grep -E '^(slurm|munge)' || true") == ""
