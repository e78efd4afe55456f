"""The script that loads the driver again: when it refuses, what it leaves, and in which order it goes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "playbooks" / "roles" / "gpu_reboot" / "files" / "reload.sh"


class Node:
    """A made-up /proc and /sys, and commands that write down how they were called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.calls = root / "calls"
        self.calls.write_text("")
        modules = root / "sys/module"
        self.command(
            "systemctl", f'echo "systemctl $*" >>{self.calls}; case $1 in is-*) grep -q "$3" {root}/services ;; esac'
        )
        self.command("rmmod", f'echo "rmmod $1" >>{self.calls}; rm -r {modules}/$1')
        loading = f'echo "modprobe $1" >>{self.calls}; mkdir -p {modules}/$1; echo 2 >{modules}/$1/version'
        self.command("modprobe", f"[ $# -eq 1 ] || exit 0; {loading}")
        self.command("depmod", ":")
        self.command("dmesg", "echo NVRM: no")
        (root / "services").write_text("nvidia-persistenced\n")

    def command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def module(self, name: str, count: int, *holders: str) -> None:
        folder = self.root / "sys/module" / name
        (folder / "holders").mkdir(parents=True)
        (folder / "refcnt").write_text(f"{count}\n")
        for holder in holders:
            (folder / "holders" / holder).mkdir()

    def holder(self, pid: int, device: str) -> None:
        folder = self.root / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(device)

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(SCRIPT), "nvidia-persistenced", "nvidia-dcgm"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "RELOAD_ROOT": str(self.root)},
        )

    @property
    def changes(self) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if " is-" not in line]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.module("nvidia_uvm", 0)
    made.module("nvidia_modeset", 1, "nvidia_drm")
    made.module("nvidia_drm", 0)
    made.module("nvidia", 2, "nvidia_uvm", "nvidia_modeset")
    return made


def test_idle_driver_is_loaded_again_in_its_order(node: Node) -> None:
    done = node.run()
    assert (done.returncode, done.stdout) == (0, "loaded 2\n")
    assert node.changes == [
        "systemctl stop nvidia-persistenced",
        "rmmod nvidia_uvm",
        "rmmod nvidia_drm",
        "rmmod nvidia_modeset",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia-uvm",
        "systemctl start nvidia-persistenced",
        "systemctl start nvidia-persistenced",
    ]


def test_process_with_a_gpu_is_left_in_peace(node: Node) -> None:
    node.holder(4242, "/dev/nvidia0")
    done = node.run()
    assert done.returncode == 3
    assert "4242" in done.stdout
    assert node.changes == ["systemctl stop nvidia-persistenced", "systemctl start nvidia-persistenced"]


@pytest.mark.parametrize("module", ["nvidia", "nvidia_uvm"])
def test_module_in_use_is_not_unloaded(node: Node, module: str) -> None:
    path = node.root / "sys/module" / module / "refcnt"
    path.write_text(f"{int(path.read_text()) + 1}\n")
    done = node.run()
    assert done.returncode == 3
    assert f"module {module} is in use" in done.stdout
    assert not any("rmmod" in line for line in node.changes)


def test_module_of_another_that_needs_the_driver_is_named(node: Node) -> None:
    (node.root / "sys/module/nvidia/holders/gdrdrv").mkdir()
    done = node.run()
    assert done.returncode == 3
    assert "gdrdrv" in done.stdout


def test_nouveau_goes_first(node: Node) -> None:
    node.module("nouveau", 0)
    assert node.run().returncode == 0
    assert node.changes[1] == "rmmod nouveau"


def test_module_that_cannot_be_loaded_asks_for_a_restart(node: Node) -> None:
    node.command("modprobe", "[ $# -eq 2 ]")
    done = node.run()
    assert done.returncode == 3
    assert "cannot be loaded" in done.stdout
    assert "NVRM: no" in done.stdout


def test_removed_driver_is_only_unloaded(node: Node) -> None:
    node.command("modprobe", "exit 1")
    done = node.run()
    assert (done.returncode, done.stdout) == (0, "unloaded, and no driver is installed to load\n")
    assert "rmmod nvidia" in node.changes
