"""The committed playbooks through `provision node`, on a bare system in a container: what a person would type."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provision.build.engine import Engine
from provision.generate.node import lock_digest
from provision.node.ansible import find_program

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "provision-test/node:bookworm"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
PARTS = "repos"
"""What needs the system's own archive only and installs nothing; the Molecule scenarios install."""


def _docker(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False, **more)


def _run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "provision", "node", *words],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def _absent(reason: str) -> None:
    if os.environ.get("PROVISION_REQUIRE_ENGINE") == "1":
        pytest.fail(f"PROVISION_REQUIRE_ENGINE=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture
def machine(engine: Engine, tmp_path: Path) -> Iterator[str]:
    """A bare Debian with systemd that lets our key in; molecule/shared/rootfs.sh makes its image, once."""
    made = subprocess.run(
        ["sh", str(ROOT / "molecule/shared/rootfs.sh"), "bookworm"], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        _absent(f"the image {IMAGE} cannot be made: {made.stderr.strip()[-300:]}")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    rights = ("--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined")
    disks = ("--tmpfs=/run", "--tmpfs=/run/lock", "--tmpfs=/tmp:exec", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw")
    started = _docker("run", "--detach", *rights, *disks, "--env=container=docker", IMAGE, "/lib/systemd/systemd")
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    try:
        script = "mkdir -p -m 700 /root/.ssh && cat > /root/.ssh/authorized_keys"
        put = _docker("exec", "--interactive", name, "sh", "-c", script, input=key.with_suffix(".pub").read_text())
        assert put.returncode == 0, put.stderr
        yield name
    finally:
        _docker("rm", "--force", name)


@pytest.fixture
def inventory(machine: str, tmp_path: Path) -> Path:
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    address = _docker("inspect", f"--format={form}", machine).stdout.strip()
    for _ in range(150):
        with socket.socket() as probe:
            if probe.connect_ex((address, 22)) == 0:
                break
        time.sleep(0.2)
    else:
        _absent("the container's sshd does not answer")
    known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    path = tmp_path / "hosts.ini"
    path.write_text(
        f"[gpu_nodes]\nnode1 ansible_host={address} ansible_user=root ansible_python_interpreter=/usr/bin/python3 "
        f'ansible_ssh_private_key_file={tmp_path / "key"} ansible_ssh_common_args="{known}"\n'
    )
    return path


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """The lock of a distribution's own driver, without what only NVIDIA's repository has."""
    yaml = pytest.importorskip("yaml")
    made = _run("lock", "--driver", "535", "--os", "debian12", "-o", "whole.yml", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    document = yaml.safe_load((tmp_path / "whole.yml").read_text())["provision_lock"]
    profile = document["profiles"]["debian12"]
    profile["repos"]["sources"] = []
    for part in ("cuda", "cudnn", "nccl", "fabric", "imex", "container_toolkit", "dcgm"):
        if part in profile:
            profile[part] = None
    document["digest"] = lock_digest(document)
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({"provision_lock": document}))
    return path


def _tree(machine: str) -> str:
    left_out = "-not -path '/var/log/*' -not -path '/root/.ansible/*'"
    script = f"find / -xdev -type f {left_out} -print0 | sort -z | xargs -0 sha256sum"
    return hashlib.sha256(_docker("exec", machine, "sh", "-c", script).stdout.encode()).hexdigest()


def _host(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)["result"]["hosts"][0]
    return found


def test_plan_touches_nothing_apply_converges_and_the_site_agrees(
    machine: str, inventory: Path, lock: Path, tmp_path: Path
) -> None:
    words = ("-i", str(inventory), "--lock", str(lock), "--json")
    before = _tree(machine)
    plan = _run("plan", *words, folder=tmp_path)
    assert plan.returncode == 0, plan.stdout + plan.stderr
    changes = {change["what"] for change in _host(plan)["changes"]}
    assert "/etc/apt/preferences.d/provision-gpu" in changes
    assert any("nvidia-kernel-dkms" in (change["said"] or "") for change in _host(plan)["changes"])
    assert _tree(machine) == before

    first = _run("apply", *words, "--tags", PARTS, folder=tmp_path)
    assert (first.returncode, _host(first)["status"]) == (0, "changed"), first.stdout + first.stderr
    second = _run("apply", *words, "--tags", PARTS, folder=tmp_path)
    assert (second.returncode, _host(second)["status"]) == (0, "ok"), second.stdout + second.stderr
    assert _host(second)["changed_tasks"] == 0
    assert _host(second)["remote_executions"] <= 12

    assert _run("export", "--lock", str(lock), "-o", "site", folder=tmp_path).returncode == 0
    (tmp_path / "site" / "inventory" / "hosts.yml").unlink()
    (tmp_path / "site" / "inventory" / "hosts.ini").write_text(inventory.read_text())
    empty = tmp_path / "empty"
    empty.mkdir()
    site = subprocess.run(
        [find_program("ansible-playbook"), "-i", "../site/inventory", "../site/site.yml", "--tags", PARTS],
        cwd=empty,
        capture_output=True,
        text=True,
        check=False,
    )
    assert site.returncode == 0, site.stdout + site.stderr
    assert "changed=0" in next(line for line in site.stdout.splitlines() if line.startswith("node1 "))


def test_exported_site_refuses_an_inventory_without_nodes(lock: Path, tmp_path: Path) -> None:
    assert _run("export", "--lock", str(lock), "-o", "site", folder=tmp_path).returncode == 0
    done = subprocess.run(
        [find_program("ansible-playbook"), "-i", "inventory", "site.yml"],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "gpu_nodes is empty" in done.stdout
