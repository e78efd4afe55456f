"""Preflight as a play: what any role would refuse later is in its one list, before a node has changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest
import yaml

PLAYBOOKS = playbook_files.PLAYBOOKS
gpu_lock = playbook_files.load_filters("gpu_lock")

HOST = {
    "os": {"id": "debian12", "name": "Debian 12", "arch": "amd64", "is_root": True, "hostname": "gpu01"},
    "kernel": {"target": "6.1.0-50-amd64", "running": "6.1.0-50-amd64"},
    "gpus": [],
    "nvswitches": [{"device": "1af1"}],
    "nics": [],
    "module": {"version": None, "is_open": None},
    "dkms": [],
    "dpkg": {"audit": "", "half": [], "is_locked": False},
    "packages": {},
    "files": {"/etc/docker/daemon.json": {"text": "{", "mode": "0644"}},
    "folders": {},
    "units": {},
    "links": {},
    "environments": [],
    "engines": {"docker": "26.1.5", "containerd": None, "crio": None, "podman": None},
    "foreign": {"runfile": None, "repos": []},
    "secure_boot": False,
    "disk": {},
    "busy": [],
}
"""A node with NVSwitches and a configuration of docker that is not JSON."""


def make_lock() -> dict[str, Any]:
    driver = playbook_files.make_driver()
    toolkit = [{"name": "nvidia-container-toolkit", "version": "1.19.1-1"}]
    lock: dict[str, Any] = {
        "lock_version": 1,
        "name": "test",
        "stack": {"driver_minimum": "525.60.13", "architectures": ["Ampere"]},
        "modules": {"Ampere": "open"},
        "nccl_conf_keys": ["NCCL_DEBUG"],
        "container_toolkit_minimum": "1.19.1",
        "profiles": {
            "debian12": {
                "os": "debian12",
                "refusal": None,
                "method": "distro",
                "driver": driver,
                "container_toolkit": {"packages": toolkit},
                "frameworks": {"environments": [], "refusal": "torch has no wheel for its Python."},
            }
        },
    }
    lock["digest"] = gpu_lock.digest_lock(lock)
    return lock


def preflight(folder: Path, host: dict[str, Any], *words: str, **variables: Any) -> tuple[int, str]:
    """Run the role on this machine with a node that was looked at before; return status and the list of problems."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    program = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    if program is None:
        pytest.skip("ansible-playbook is not installed: `pip install 'gpu-provision[ansible]'`")
    lock = make_lock()
    seen = {
        "gpu_facts_host": host,
        "gpu_facts_profile": lock["profiles"]["debian12"],
        "gpu_facts_architecture": [],
        "provision_lock": lock,
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {**seen, **variables},
        "roles": [{"role": "gpu_preflight", "tags": ["always"]}],
    }
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    done = subprocess.run(
        [program, "play.yml", *words],
        cwd=folder,
        env={
            **clean,
            "HOME": str(folder),
            "ANSIBLE_FILTER_PLUGINS": str(PLAYBOOKS / "filter_plugins"),
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_ROLES_PATH": str(PLAYBOOKS / "roles"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_every_role_would_refuse_is_in_one_list(tmp_path: Path) -> None:
    status, said = preflight(
        tmp_path,
        HOST,
        gpu_cudda=1,
        gpu_kernel_policy="hodl",
        gpu_driver_version="535; reboot",
        gpu_nccl_conf={"NCCL_DEBUG": "INFO\nLD_PRELOAD=/x"},
        gpu_cuda_versions=["12.1"],
        gpu_rdma_stack="doca",
        gpu_k8s_enabled=True,
        gpu_k8s_labels={"a b": "c"},
        gpu_access_ssh_from=["not an address"],
    )
    assert status != 0
    for words in (
        "`gpu_cudda`",
        "gpu_kernel takes one of track, hold, pin",
        "`gpu_driver_version` is '535; reboot'",
        "the value of NCCL_DEBUG is",
        "gpu_cuda_versions names CUDA 12.1",
        "gpu_rdma_stack is doca",
        "Kubernetes takes no label a b=c",
        "not an address",
        "the lock has no fabric manager",
        "/etc/docker/daemon.json",
        "torch has no wheel for its Python. Resolve another stack for debian12, or set gpu_frameworks_enabled",
    ):
        assert words in said, f"{words}\n{said}"


def test_what_the_tags_do_not_reach_is_let_pass(tmp_path: Path) -> None:
    status, said = preflight(tmp_path, HOST, "--tags", "driver", gpu_rdma_stack="doca", gpu_cuda_versions=["12.1"])
    assert status == 0, said


def with_code(gpu: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a node with one GPU, and the variables of the role for a lock that knows what its torch was built for."""
    lock = make_lock()
    committed = yaml.safe_load((PLAYBOOKS / "group_vars/all/provision_lock.yml").read_text(encoding="utf-8"))
    whole = committed["provision_lock"]
    environments = whole["profiles"]["debian12"]["frameworks"]["environments"]
    lock["profiles"]["debian12"]["frameworks"] = {"environments": environments, "python": "3.11", "packages": []}
    lock |= {key: whole[key] for key in ("compute_capabilities", "devices", "gpus", "request")}
    lock["digest"] = gpu_lock.digest_lock(lock)
    host = {**HOST, "nvswitches": [], "files": {}, "gpus": [{"address": "0000:65:00.0", "device": gpu, "driver": None}]}
    return host, {"provision_lock": lock, "gpu_facts_profile": lock["profiles"]["debian12"]}


def test_environment_without_code_for_the_gpu_is_refused(tmp_path: Path) -> None:
    host, variables = with_code("1db1")
    status, said = preflight(tmp_path, host, **variables)
    assert status != 0
    assert "Tesla V100 SXM2 16GB of this node (compute capability 7.0)" in said
    assert "Reasons: 1" in said


@pytest.mark.parametrize(
    ("gpu", "words", "changes"),
    [
        ("20b2", (), {}),
        ("1eb8", (), {}),
        ("1db1", ("--tags", "driver"), {}),
        ("1db1", (), {"gpu_frameworks_enabled": False}),
    ],
    ids=["A100", "T4", "V100-driver-alone", "V100-without-frameworks"],
)
def test_gpu_that_has_code_or_needs_none_passes(
    tmp_path: Path, gpu: str, words: tuple[str, ...], changes: dict[str, Any]
) -> None:
    host, variables = with_code(gpu)
    status, said = preflight(tmp_path, host, *words, **variables, **changes)
    assert status == 0, said


def test_gpu_of_an_unlisted_number_is_told_and_let_pass(tmp_path: Path) -> None:
    host, variables = with_code("0001")
    status, said = preflight(tmp_path, host, "-v", **variables)
    assert status == 0, said
    assert "has code for the unknown GPU of PCI id 10de:0001" in said
