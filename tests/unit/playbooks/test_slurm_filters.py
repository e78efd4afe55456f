"""What Slurm is told: one configuration of what each node says of itself, or a refusal that names the fault."""

from __future__ import annotations

from typing import Any

import playbook_files
import pytest

FILTERS = playbook_files.load_filters("gpu_slurm").FilterModule().filters()
PROBLEMS, CONF = FILTERS["gpu_slurm_problems"], FILTERS["gpu_slurm_conf"]
GRES, TOPOLOGY = FILTERS["gpu_slurm_gres"], FILTERS["gpu_slurm_topology"]


def row(name: str, **changes: Any) -> dict[str, Any]:
    address = f"192.0.2.{sum(name.encode()) % 200 + 1}"
    common = {"name": name, "address": address, "cpus": 64, "memory_mib": 500000, "gpus": 8, "type": "h100", "mig": []}
    return {**common, "is_compute": True, **changes}


def settings(**changes: Any) -> dict[str, Any]:
    common: dict[str, Any] = {
        "cluster": "gpu",
        "partition": "train",
        "controller": row("ctl"),
        "constrain": True,
        "autodetect": False,
        "topology": {},
        "options": {},
        "accounting": False,
        "health": True,
        "health_interval": 300,
        "program": "/usr/local/lib/provision/node_health.py",
    }
    return {**common, **changes}


ROWS = {"ctl": row("ctl", gpus=0, is_compute=False), "b": row("node2", gpus=1, type=""), "a": row("node1")}


def conf(**changes: Any) -> str:
    text: str = CONF(settings(**changes), ROWS.values())
    return text


def test_every_node_is_named_once_with_its_gpus_and_the_controller_does_not_compute() -> None:
    lines = [line for line in conf().splitlines() if line.startswith("NodeName")]
    assert [line.split()[0] for line in lines] == ["NodeName=node1", "NodeName=node2"]
    assert "CPUs=64 RealMemory=500000 Gres=gpu:h100:8 State=UNKNOWN" in lines[0]
    assert " Gres=gpu:1 " in lines[1]
    assert conf().splitlines()[-1] == "PartitionName=train Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP"


def test_a_job_without_a_word_on_memory_does_not_take_the_whole_node() -> None:
    assert "DefMemPerCPU=7812\n" in conf()


def test_the_health_program_is_all_three_and_may_be_left_out() -> None:
    program = settings()["program"]
    for key in ("HealthCheckProgram", "Prolog", "Epilog"):
        assert f"\n{key}={program}\n" in conf()
        assert f"\n{key}=" not in conf(health=False)


def test_devices_are_constrained_by_control_groups_unless_that_is_switched_off() -> None:
    assert "TaskPlugin=task/cgroup,task/affinity\n" in conf()
    assert "cgroup" not in conf(constrain=False)


def test_a_user_s_option_beats_ours() -> None:
    text = conf(options={"ReturnToService": 2, "AuthInfo": "cred_expire=60"})
    assert text.count("ReturnToService=") == 1
    assert "ReturnToService=2\n" in text
    assert "AuthInfo=cred_expire=60\n" in text


def test_gpus_are_device_nodes_or_what_nvml_finds() -> None:
    lines = GRES(settings(), ROWS.values()).splitlines()[1:]
    assert lines == [
        "NodeName=node1 Name=gpu Type=h100 File=/dev/nvidia[0-7]",
        "NodeName=node2 Name=gpu File=/dev/nvidia0",
    ]
    assert GRES(settings(autodetect=True), ROWS.values()).splitlines()[1:] == ["AutoDetect=nvml"]


def test_mig_devices_stand_in_place_of_their_gpus() -> None:
    caps = "/dev/nvidia-caps/nvidia-cap"
    mig = [{"type": "1g.10gb", "files": ["/dev/nvidia0", f"{caps}{index}"]} for index in (12, 21)]
    rows = [row("node1", mig=[*mig, {"type": "3g.40gb", "files": ["/dev/nvidia0"]}])]
    assert "Gres=gpu:1g.10gb:2,gpu:3g.40gb:1" in CONF(settings(), rows)
    lines = GRES(settings(), rows).splitlines()[1:]
    assert lines[0] == f"NodeName=node1 Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,{caps}12"
    assert len(lines) == 3


def test_switches_hang_from_one_above_them() -> None:
    text = TOPOLOGY({"leaf2": ["node2"], "leaf1": ["node1", "node3"]})
    assert text.splitlines()[1:] == [
        "SwitchName=leaf1 Nodes=node1,node3",
        "SwitchName=leaf2 Nodes=node2",
        "SwitchName=provision_top Switches=leaf1,leaf2",
    ]
    assert "provision_top" not in TOPOLOGY({"leaf1": ["node1"]})
    assert "TopologyPlugin=topology/tree" in conf(topology={"leaf1": ["node1"]})


def test_accounts_are_kept_by_the_controller() -> None:
    assert f"AccountingStorageHost={row('ctl')['address']}\n" in conf(accounting=True)
    assert "Accounting" not in conf()


def test_sound_settings_have_no_problem() -> None:
    assert PROBLEMS(settings(topology={"leaf1": ["node1", "node2"]}), ROWS) == []


@pytest.mark.parametrize(
    ("changed", "rows", "said"),
    [
        ({}, {"c": None}, "has not looked at c: run the play without --limit"),
        ({"partition": "a b"}, {}, "gpu_slurm_partition is `a b`"),
        ({}, {"c": row("node1")}, "two hosts are called node1"),
        ({}, {"c": row("bad name")}, "`bad name` is not a host name"),
        ({}, {"c": row("node3", cpus=0)}, "gpu_slurm_cpus of node3 is 0"),
        ({}, {"c": row("node3", gpus=-1)}, "gpu_slurm_gpus of node3 is -1"),
        ({}, {"c": row("node3", type="h 100")}, "gpu_slurm_gpu_type of node3"),
        ({}, {"c": row("node3", mig=[{"type": "1g.10gb"}])}, "gpu_slurm_mig_devices of node3"),
        ({"options": {"NodeName": "x"}}, {}, "`NodeName` is decided by a variable of its own"),
        ({"options": {"Prolog": "/x\nEpilog=/y"}}, {}, "`Prolog` has more than one line"),
        ({"options": {"a b": "x"}}, {}, "`a b` is not a word of slurm.conf"),
        ({"topology": {"leaf1": ["node9"]}}, {}, "`node9` behind leaf1 is not a node"),
        ({"topology": {"leaf1": ["node1"], "leaf2": ["node1"]}}, {}, "`node1` is behind two switches"),
        ({"topology": {"leaf1": "node1"}}, {}, "`leaf1` is not a switch with a list of nodes"),
    ],
)
def test_each_fault_is_named(changed: dict[str, Any], rows: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in PROBLEMS(settings(**changed), {**ROWS, **rows}))


def test_a_cluster_without_a_node_that_computes_is_refused() -> None:
    assert "no host computes" in PROBLEMS(settings(), {"ctl": row("ctl", is_compute=False)})[0]
