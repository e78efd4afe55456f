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
from concurrent.futures import ThreadPoolExecutor
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


# Two runs at one node. What a run installs is a small package of Debian's in the place of a CUDA toolkit.

TOOLKIT = "tree"
WAIT = "until [ -e /run/go-on ]; do sleep 1; done"
SLOW = f'[ "$DPKG_HOOK_ACTION" != configure ] || [ -e /run/mark ] || {{ touch /run/mark; {WAIT}; }}'


@pytest.fixture
def small_lock(lock: Path) -> Path:
    document = json.loads(lock.read_text())["provision_lock"]
    document["profiles"]["debian12"]["cuda"] = {
        "versions": ["12.1"],
        "packages": {"12.1": [{"name": TOOLKIT, "version": None}]},
        "homes": {"12.1": "/usr"},
        "default": "12.1",
        "compat": {},
    }
    document["digest"] = lock_digest(document)
    lock.write_text(json.dumps({"provision_lock": document}))
    return lock


def _apply(action: str, inventory: Path, lock: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    return _run(action, "-i", str(inventory), "--lock", str(lock), "--json", *words, folder=folder)


def test_second_controller_is_told_who_is_at_work_and_the_first_ends_well(
    machine: str, inventory: Path, small_lock: Path, tmp_path: Path
) -> None:
    script = "printf 'pre-invoke=%s\\n' \"$1\" >/etc/dpkg/dpkg.cfg.d/slow"
    assert _docker("exec", machine, "sh", "-c", script, "sh", SLOW).returncode == 0
    with ThreadPoolExecutor() as threads:
        first = threads.submit(_apply, "apply", inventory, small_lock, "-t", "repos,cuda", folder=tmp_path / "one")
        while not first.done() and _docker("exec", machine, "test", "-e", "/run/mark").returncode != 0:
            time.sleep(0.5)
        assert not first.done(), first.result().stdout + first.result().stderr
        # Its own folder of states: a controller of its own, as far as the first can tell.
        second = _apply("apply", inventory, small_lock, "-t", "repos,cuda", folder=tmp_path / "two")
        was_first_at_work = not first.done()
        assert _docker("exec", machine, "touch", "/run/go-on").returncode == 0
        done = first.result()
    assert was_first_at_work, "the second came too late to show anything"
    assert second.returncode != 0
    message = _host(second)["message"]
    assert "is at work on this node" in message
    assert "installing packages for CUDA" in message
    assert done.returncode == 0, done.stdout + done.stderr
    shown = _docker("exec", machine, "dpkg-query", "-W", "-f", "${db:Status-Abbrev}", TOOLKIT)
    assert shown.stdout.strip() == "ii"
    third = _apply("apply", inventory, small_lock, "-t", "repos,cuda", folder=tmp_path / "two")
    assert (third.returncode, _host(third)["changed_tasks"]) == (0, 0), third.stdout + third.stderr


def test_what_a_user_installed_after_a_first_run_that_failed_is_the_users(
    machine: str, inventory: Path, small_lock: Path, tmp_path: Path
) -> None:
    broken = _apply(
        "apply", inventory, small_lock, "-t", "repos,cuda", "-e", "gpu_repos_proxy=http://127.0.0.1:9", folder=tmp_path
    )
    assert broken.returncode != 0
    assert "Nothing was" in _host(broken)["message"], broken.stdout + broken.stderr
    script = f"apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install {TOOLKIT} htop"
    assert _docker("exec", machine, "sh", "-c", script).returncode == 0
    whole = _apply("apply", inventory, small_lock, "-t", "repos,cuda", folder=tmp_path)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    removed = _apply("remove", inventory, small_lock, folder=tmp_path)
    assert removed.returncode == 0, removed.stdout + removed.stderr
    manual = _docker("exec", machine, "apt-mark", "showmanual", TOOLKIT, "htop").stdout.split()
    assert manual == ["htop", TOOLKIT]
