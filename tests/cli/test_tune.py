"""`provision tune` as people run it, over bundles of stand-in machines."""

from __future__ import annotations

import re
from pathlib import Path

import machines
import pytest
import yaml

from provision.probe.bundle import write_bundle


@pytest.fixture
def bundle(tmp_path: Path):
    def write(machine: str, *targets: str) -> Path:
        path = tmp_path / f"{machine}.tar.gz"
        outputs = machines.MACHINES[machine]()
        write_bundle(path, {name: machines.snapshot(outputs, name) for name in targets or ("gpu001",)})
        return path

    return write


def settings(answer) -> dict[str, str]:
    return {row["id"]: row["value"] for row in answer.document["result"]["settings"]}


def test_a_machine_with_rdma_is_not_told_of_sockets(provision, bundle):
    found = settings(provision("tune", "--from", bundle("hgx_h100"), "--nodes", "2", "--json"))
    assert "nccl-socket-threads" not in found
    assert found["data-loader-workers"] == "14"
    assert found["cpu-affinity"].startswith("GPU0 on 0-55; GPU1 on 0-55;")


def test_a_machine_without_a_gpu_is_told_before_its_settings_are_believed(provision, bundle):
    answer = provision("tune", "--from", bundle("cpu_only"), "--nodes", "2")
    assert "warning: no NVIDIA GPU is visible on gpu001" in answer.err
    assert "visible" not in provision("tune", "--from", bundle("hgx_h100"), "--nodes", "2").err


def test_interrupts_of_a_fast_card_are_told_where_there_are_two_sockets(provision, bundle):
    told = settings(provision("tune", "--from", bundle("hgx_h100"), "--nodes", "2", "--json"))["irq-affinity"]
    assert re.fullmatch(r"off, and set_irq_affinity_bynode.sh NODE for each of \w+(, \w+)*", told)
    one_socket = settings(provision("tune", "--from", bundle("workstation_rtx4090"), "--nodes", "2", "--json"))
    assert "irq-affinity" not in one_socket


def test_ports_of_switches_are_left_out(provision, bundle):
    found = settings(provision("tune", "--from", bundle("hgx_b200"), "--nodes", "2", "--json"))
    assert found["nccl-ib-hca"] == "=" + ",".join(f"mlx5_{number}" for number in range(8))


def test_one_node_needs_nothing_of_the_network(provision, bundle):
    found = settings(provision("tune", "--from", bundle("hgx_b200"), "--json"))
    assert not any(name.startswith("nccl-") for name in found)


def test_a_cloud_that_nccl_knows_keeps_its_values(provision, bundle):
    assert "nccl-socket-sockets" in settings(
        provision("tune", "--from", bundle("workstation_rtx4090"), "--nodes", "2", "--json")
    )
    assert "nccl-socket-sockets" not in settings(
        provision("tune", "--from", bundle("cloud_a10g"), "--nodes", "2", "--json")
    )


def test_each_setting_says_why_and_where_it_was_read(provision, bundle):
    answer = provision("tune", "--from", bundle("hgx_h100"), "--nodes", "2", "--json")
    rows = answer.document["result"]["settings"]
    assert rows
    assert all(row["reason"] and row["source"] and row["where"] for row in rows)


def test_a_folk_setting_ends_with_3_and_writes_nothing(provision, bundle, tmp_path):
    words = ("--set", "NCCL_IB_DISABLE=1", "-o", tmp_path / "out")
    answer = provision("tune", "--from", bundle("hgx_h100"), *words)
    assert answer.code == 3
    assert "falls back to IP sockets" in answer.err
    assert not (tmp_path / "out").exists()


def test_the_port_that_articles_name_is_refuted(provision, bundle):
    answer = provision("tune", "--from", bundle("hgx_h100"), "--set", "NCCL_PORT=12345")
    assert answer.code == 3
    assert "ephemeral" in answer.err
    assert "net.ipv4.ip_local_port_range" in answer.err


def test_a_pointless_setting_is_taken_with_a_warning(provision, bundle, tmp_path):
    words = ("--set", "NCCL_IB_DISABLE=0", "-o", tmp_path / "out")
    answer = provision("tune", "--from", bundle("hgx_h100"), *words)
    assert answer.code == 0
    assert "warning: NCCL_IB_DISABLE=0" in answer.err
    variables = yaml.safe_load((tmp_path / "out" / "gpu_nccl.yml").read_text())
    assert variables == {"gpu_nccl_conf": {"NCCL_IB_DISABLE": "0"}}


def test_files_hold_what_was_chosen(provision, bundle, tmp_path):
    words = ("--nodes", "2", "--firewall", "--also", "port-range", "--also", "torch-cuda-alloc-conf")
    answer = provision("tune", "--from", bundle("hgx_h100"), *words, "-o", tmp_path / "out")
    assert answer.code == 0, answer.err
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in files["tune.env"]
    assert "net.ipv4.ip_local_port_range = 50000 51000\n" in files["90-provision-tune.conf"]
    assert "gpu_nccl.yml" not in files


def test_the_role_takes_what_is_written(provision, bundle, tmp_path):
    from provision.matrix.load import Matrix

    words = ("--nodes", "2", "--also", "nccl-ib-hca", "-o", tmp_path / "out")
    assert provision("tune", "--from", bundle("hgx_b200"), *words).code == 0
    variables = yaml.safe_load((tmp_path / "out" / "gpu_nccl.yml").read_text())
    keys = set(Matrix().setting("nccl.toml", "conf_keys").values)
    assert set(variables["gpu_nccl_conf"]) <= keys


@pytest.mark.parametrize(
    "words",
    [
        ("--also", "nothing"),
        ("--set", "NAME"),
        ("--set", "A={{ x }}"),
        ("--set", "A=1", "--set", "A=2"),
        ("--nodes", "0"),
        ("--nodes", "many"),
        ("--lock", "absent"),
    ],
)
def test_wrong_words_end_with_2(provision, bundle, words):
    assert provision("tune", "--from", bundle("hgx_h100"), *words).code == 2


def test_two_machines_are_one_too_many(provision, bundle):
    assert provision("tune", "--from", bundle("hgx_h100", "gpu001", "gpu002")).code == 2


def test_a_lock_says_which_versions_run(provision, bundle, tmp_path):
    folder = tmp_path / "image"
    assert provision("image", "--torch", "2.10", "-o", folder).code == 0
    found = settings(provision("tune", "--from", bundle("hgx_h100"), "--lock", folder / "provision.lock", "--json"))
    assert "torch-alloc-conf" in found
    assert "torch-cuda-alloc-conf" not in found


DESCRIBED = ("tune", "--gpus", "8", "--cpus", "128", "--numa-nodes", "2")


def test_a_machine_can_be_described_where_none_can_be_looked_at(provision):
    answer = provision(*DESCRIBED, "--interconnect", "ib", "--network-gbit", "400", "--nodes", "4", "--json")
    assert answer.document["result"]["conditions"] == ["100g", "affinity", "cpus", "multi-node", "node", "rdma"]
    told = settings(answer)
    assert told["cpu-affinity"].startswith("each GPU on the processors of its NUMA node")
    assert told["irq-affinity"].endswith("NODE for each of its interfaces of 400 Gbit/s")
    assert "nothing is said of limits, bridges" in answer.err


def test_a_described_machine_and_a_lock_say_how_many_workers_load_data(provision, tmp_path):
    assert provision("image", "--torch", "2.8", "-o", tmp_path / "image").code == 0
    told = settings(provision(*DESCRIBED, "--lock", tmp_path / "image/provision.lock", "--json"))
    assert told["data-loader-workers"] == "16"


def test_what_a_description_does_not_tell_holds_neither_way(provision):
    conditions = provision("tune", "--gpus", "8", "--json").document["result"]["conditions"]
    assert conditions == ["node"]
    words = ("tune", "--gpus", "1", "--numa-nodes", "2", "--container", "--interconnect", "ethernet", "--json")
    assert provision(*words).document["result"]["conditions"] == ["container", "no-rdma"]
    assert "100g" not in provision("tune", "--network-gbit", "99", "--json").document["result"]["conditions"]


def test_a_described_machine_is_not_looked_at(provision, monkeypatch):
    def look(*_):
        raise AssertionError("this machine was looked at")

    monkeypatch.setattr("provision.cli.commands.tune.collect_from", look)
    assert provision("tune", "--gpus", "8").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpu001", "--gpus", "8"), "leave out --gpus, or the target"),
        (("--from", "gpu001.tar.gz", "--container"), "leave out --container, or the target"),
        (("--cpus", "12"), "add them: `--gpus N`"),
        (("--numa-nodes", "2"), "--numa-nodes needs the GPUs"),
        (("--gpus", "8", "--cpus", "4"), "--cpus 4 are fewer than --gpus 8"),
        (("--gpus", "0"), "--gpus `0` is not from 1 to 1024"),
        (("--network-gbit", "0"), "as in `--network-gbit 100`"),
        (("--interconnect", "nvlink"), "choose ib, efa, rdma, ethernet"),
    ],
)
def test_a_description_that_is_none_is_refused(provision, words, said):
    answer = provision("tune", *words)
    assert answer.code == 2
    assert said in answer.err
