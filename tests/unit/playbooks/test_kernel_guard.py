"""The kernel guard, run against a made-up node: what it flags, what GRUB starts, which kernel apt may bring."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROLE = Path(__file__).parents[3] / "playbooks" / "roles" / "gpu_kernel"
GUARD = ROLE / "files" / "kernel-guard"
OLD, NEW = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"
MENU = """
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-aaaa-bbbb' {{
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-aaaa-bbbb' {{
{entries}
}}
"""
ENTRY = "\tmenuentry 'Debian, with Linux {0}' $menuentry_id_option 'gnulinux-{0}-advanced-aaaa-bbbb' {{"

pytestmark = pytest.mark.skipif(
    shutil.which("dpkg") is None, reason="the guard compares versions with dpkg, which this machine lacks"
)


class Node:
    """A root folder with the guard's configuration, and commands that answer from files in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        (root / "dkms").write_text("")
        self.command("dkms", f'[ $# -eq 1 ] && exec cat {root}/dkms; grep "^$3[/,] *$5, $7," {root}/dkms')
        self.command("dpkg-query", f'for name; do :; done; grep -q "^$name$" {root}/packages && printf installed')
        self.command("update-grub", f"echo run >>{root}/grub-runs")
        (root / "packages").write_text("nvidia-open-kernel-dkms\n")
        self.configure("policy track", "module nvidia-current-open open nvidia-open-kernel-dkms")

    def command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def configure(self, *lines: str) -> None:
        path = self.root / "etc/provision/kernel-guard.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")

    def kernel(self, name: str, *, has_headers: bool = True) -> None:
        (self.root / "boot").mkdir(exist_ok=True)
        (self.root / "boot" / f"vmlinuz-{name}").write_text("")
        (self.root / "lib/modules" / name).mkdir(parents=True, exist_ok=True)
        if has_headers:
            (self.root / "lib/modules" / name / "build/include").mkdir(parents=True)

    def grub(self, *kernels: str) -> None:
        path = self.root / "boot/grub/grub.cfg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MENU.format(entries="\n".join(ENTRY.format(kernel) for kernel in kernels)))

    def builds(self, *rows: str) -> None:
        (self.root / "dkms").write_text("".join(f"{row}\n" for row in rows))

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(GUARD), *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "KERNEL_GUARD_ROOT": str(self.root)},
        )

    def hook(self, kernel: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        self.command("original", f'echo "$@" >>{self.root}/calls; exit {status}')
        return self.run("hook", str(self.bin / "original"), kernel, f"/boot/vmlinuz-{kernel}")

    def flag(self, kernel: str) -> dict[str, str] | None:
        path = self.root / f"var/lib/provision/kernel-guard/{kernel}.json"
        return json.loads(path.read_text()) if path.exists() else None

    @property
    def default(self) -> str | None:
        path = self.root / "etc/default/grub.d/zz-provision-kernel-guard.cfg"
        return path.read_text().splitlines()[-1] if path.exists() else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def row(kernel: str, status: str = "installed", version: str = "550.163.01") -> str:
    return f"nvidia-current-open/{version}, {kernel}, x86_64: {status}"


def test_kernel_with_its_module_passes(node: Node) -> None:
    node.kernel(NEW)
    node.builds(row(NEW))
    done = node.hook(NEW)
    assert done.returncode == 0
    assert node.flag(NEW) is None
    assert (node.root / "calls").read_text() == f"{NEW} /boot/vmlinuz-{NEW}\n"


def test_failed_build_is_flagged_and_dpkg_goes_on(node: Node) -> None:
    node.kernel(OLD)
    node.kernel(NEW)
    log = node.root / "var/lib/dkms/nvidia-current-open/550.163.01/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text("error: too few arguments\n")
    node.builds(row(OLD))
    done = node.hook(NEW, status=11)
    assert done.returncode == 0
    assert node.flag(NEW) == {
        "kernel": NEW,
        "module": "nvidia-current-open",
        "driver": "550.163.01",
        "flavour": "open",
        "reason": "DKMS could not build the module",
        "log": str(log),
    }
    assert f"kernel {NEW} has no NVIDIA module" in done.stderr
    assert str(log) in done.stderr


def test_image_before_its_headers_is_flagged_until_they_come(node: Node) -> None:
    node.kernel(OLD)
    node.kernel(NEW, has_headers=False)
    node.builds(row(OLD))
    node.hook(NEW)
    flag = node.flag(NEW)
    assert flag is not None
    assert "headers of this kernel are not installed" in flag["reason"]
    node.builds(row(OLD), row(NEW))
    assert "has its NVIDIA module now" in node.hook(NEW).stderr
    assert node.flag(NEW) is None


def test_failure_of_another_module_stays_a_failure(node: Node) -> None:
    node.kernel(NEW)
    node.builds(row(NEW), f"zfs/2.2, {NEW}, x86_64: added")
    assert node.hook(NEW, status=11).returncode == 11


def test_node_without_a_driver_is_left_alone(node: Node) -> None:
    node.kernel(NEW)
    node.builds(f"zfs/2.2, {NEW}, x86_64: installed")
    assert node.hook(NEW, status=3).returncode == 3
    assert node.flag(NEW) is None


def test_old_dkms_writes_commas(node: Node) -> None:
    node.kernel(NEW)
    node.builds(f"nvidia-current-open, 550.163.01, {NEW}, x86_64: installed")
    node.hook(NEW)
    assert node.flag(NEW) is None


def test_flavours_that_share_a_name_are_told_apart_by_package(node: Node) -> None:
    node.configure("policy track", "module nvidia open nvidia-dkms-open", "module nvidia proprietary nvidia-dkms")
    (node.root / "packages").write_text("nvidia-dkms\n")
    node.kernel(NEW)
    node.builds("nvidia/550.163.01: added")
    node.hook(NEW)
    flag = node.flag(NEW)
    assert flag is not None
    assert flag["flavour"] == "proprietary"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "6.1 0", '6.1"x', ".hidden"])
def test_hostile_kernel_names_write_nothing(node: Node, name: str) -> None:
    node.builds(row(OLD))
    done = node.run("hook", "/nonexistent", name)
    assert done.returncode == 0
    assert not (node.root / "var/lib/provision").exists()


def test_grub_goes_on_with_the_newest_kernel_that_has_a_module(node: Node) -> None:
    oldest = "6.12.9+deb13-amd64"
    for kernel in (oldest, OLD, NEW):
        node.kernel(kernel)
    node.grub(NEW, OLD, oldest)
    node.builds(row(oldest), row(OLD))
    done = node.hook(NEW, status=11)
    assert node.default == f"GRUB_DEFAULT='gnulinux-advanced-aaaa-bbbb>gnulinux-{OLD}-advanced-aaaa-bbbb'"
    assert f"the next boot starts {OLD}" in done.stderr
    assert (node.root / "grub-runs").read_text() == "run\n"

    node.hook(NEW, status=11)
    assert (node.root / "grub-runs").read_text() == "run\n"  # nothing changed, so GRUB is not written again

    node.builds(row(oldest), row(OLD), row(NEW))
    node.run("refresh")
    assert node.flag(NEW) is None
    assert node.default is None
    assert (node.root / "grub-runs").read_text() == "run\nrun\n"


def test_grub_without_submenu(node: Node) -> None:
    for kernel in (OLD, NEW):
        node.kernel(kernel)
    node.grub(NEW, OLD)
    path = node.root / "boot/grub/grub.cfg"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("submenu")))
    node.builds(row(OLD))
    node.hook(NEW, status=11)
    assert node.default == f"GRUB_DEFAULT='gnulinux-{OLD}-advanced-aaaa-bbbb'"


def test_without_grub_it_says_which_kernel_to_start(node: Node) -> None:
    for kernel in (OLD, NEW):
        node.kernel(kernel)
    node.builds(row(OLD))
    done = node.hook(NEW, status=11)
    assert done.returncode == 0
    assert "no GRUB" in done.stderr
    assert OLD in done.stderr
    assert node.default is None


def test_pinned_kernel_is_started_although_a_newer_one_is_good(node: Node) -> None:
    for kernel in (OLD, NEW):
        node.kernel(kernel)
    node.grub(NEW, OLD)
    node.configure("policy pin", f"default {OLD}", "module nvidia-current-open open nvidia-open-kernel-dkms")
    node.builds(row(OLD), row(NEW))
    node.hook(NEW)
    assert node.default is not None
    assert OLD in node.default


def test_flag_of_a_removed_kernel_is_dropped(node: Node) -> None:
    node.kernel(OLD)
    node.kernel(NEW)
    node.builds(row(OLD))
    node.hook(NEW, status=11)
    assert node.flag(NEW) is not None
    (node.root / f"boot/vmlinuz-{NEW}").unlink()
    shutil.rmtree(node.root / "lib/modules" / NEW)
    node.run("refresh")
    assert node.flag(NEW) is None


BAD = "bad 550.163.01 open 6.12.97 - example/driver#1"


def plan(*lines: str) -> str:
    return "VERSION 3\nAPT::Architecture=amd64\n\n" + "".join(f"{line}\n" for line in lines)


def incoming(kernel: str, version: str, kind: str = "image") -> str:
    return f"linux-{kind}-{kernel} - - none < {version} amd64 none /var/cache/apt/archives/x.deb"


@pytest.mark.parametrize("policy", ["hold", "pin"])
@pytest.mark.parametrize("kind", ["image", "headers"])
def test_apt_refuses_a_kernel_known_to_be_bad(node: Node, policy: str, kind: str) -> None:
    node.configure(f"policy {policy}", "module nvidia-current-open open nvidia-open-kernel-dkms", BAD)
    node.builds(row(OLD))
    done = node.run("apt", text=plan(incoming(NEW, "6.12.107-1", kind)))
    assert done.returncode == 1
    assert f"linux-{kind}-{NEW}" in done.stderr
    assert "example/driver#1" in done.stderr
    assert "apt-mark hold" in done.stderr


def test_apt_only_warns_where_kernels_are_tracked(node: Node) -> None:
    node.configure("policy track", "module nvidia-current-open open nvidia-open-kernel-dkms", BAD)
    node.builds(row(OLD))
    done = node.run("apt", text=plan(incoming(NEW, "6.12.107-1")))
    assert done.returncode == 0
    assert "warning" in done.stderr


@pytest.mark.parametrize(
    ("version", "bad", "is_refused"),
    [
        ("6.12.94-1", BAD, False),
        ("6.12.97-1", BAD, True),
        ("1:6.12.107-1", BAD, True),
        ("1:6.12.94-1", BAD, False),
        ("6.12.107-1", "bad 550.163.01 open - 6.12.99 -", False),
        ("6.12.99-1", "bad 550.163.01 open - 6.12.99 -", True),
        ("6.12.107-1", "bad 550.163.01 proprietary 6.12.97 - -", False),
        ("6.12.107-1", "bad 535.1 open 6.12.97 - -", False),
    ],
)
def test_apt_refuses_by_range_flavour_and_driver(node: Node, version: str, bad: str, is_refused: bool) -> None:
    node.configure("policy hold", "module nvidia-current-open open nvidia-open-kernel-dkms", bad)
    node.builds(row(OLD))
    assert (node.run("apt", text=plan(incoming(NEW, version))).returncode == 1) is is_refused


@pytest.mark.parametrize("what", ["**CONFIGURE**", "**REMOVE**"])
def test_apt_may_configure_and_remove_any_kernel(node: Node, what: str) -> None:
    node.configure("policy hold", "module nvidia-current-open open nvidia-open-kernel-dkms", BAD)
    node.builds(row(OLD))
    line = f"linux-image-{NEW} 6.12.107-1 amd64 none = 6.12.107-1 amd64 none {what}"
    assert node.run("apt", text=plan(line)).returncode == 0


def test_driver_of_the_same_transaction_is_the_one_that_counts(node: Node) -> None:
    node.configure("policy hold", "module nvidia-current-open open nvidia-open-kernel-dkms", BAD)
    node.builds(row(OLD))
    driver = "nvidia-open-kernel-dkms 550.163.01-2 amd64 none < {} amd64 none /x.deb"
    mended = plan(driver.format("580.1-1"), incoming(NEW, "6.12.107-1"))
    assert node.run("apt", text=mended).returncode == 0
    node.builds(row(OLD, version="580.1"))
    worse = plan(incoming(NEW, "6.12.107-1"), driver.format("550.163.01-2"))
    assert node.run("apt", text=worse).returncode == 1


def test_hook_of_dkms_runs_without_the_guard(tmp_path: Path) -> None:
    hook = tmp_path / "dkms"
    hook.write_text((ROLE / "files" / "kernel-hook").read_text().replace("/usr/local/lib/provision", str(tmp_path)))
    original = tmp_path / "dkms.provision-original"
    original.write_text('#!/bin/sh\necho "ran $*"\nexit 7\n')
    original.chmod(0o755)
    done = subprocess.run(["sh", str(hook), NEW, "image"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, f"ran {NEW} image\n")
    original.unlink()
    assert subprocess.run(["sh", str(hook), NEW], check=False).returncode == 0
