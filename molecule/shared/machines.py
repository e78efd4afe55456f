"""Boot a node's root file system as a virtual machine, emulated by QEMU: a kernel of its own, which containers lack.

It proves what no container can: that the kernel the node would boot takes the driver's module (its version, its build,
its signature) and keeps nouveau out, and that the play's reboot is one. There is no GPU in it, so the module answers
that it found none; that is its own code speaking.

``create`` and ``destroy`` are called by the plays of the same name in the scenario ``machine``.

Needs an engine (the tree comes out of an image), ``qemu-system-x86_64``, ``mkfs.ext4`` and no root beyond the engine's.
Everything is emulated, so it takes minutes: no test but the scenario ``machine`` uses it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nodes

__all__ = ["MachineError", "boot_machine", "halt_machine", "missing_tools"]

IMAGE_SCRIPTS = Path(__file__).resolve().parents[2] / "playbooks" / "site" / "image"
TOOLS = ("docker", "qemu-system-x86_64", "mkfs.ext4", "tar")
DISK = "8G"
MEMORY_MIB = 3072
HALT_SECONDS = 20
# Where QEMU's own network answers questions for names.
NAME_SERVER = "10.0.2.3"
BOOT_SECONDS = 1200
KERNEL_COMMAND = "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off"
# A container's systemd must not manage devices, a machine's must; the network is QEMU's, which speaks DHCP.
SETTLE = """set -eu
export DEBIAN_FRONTEND=noninteractive
if ! ls /boot/vmlinuz-* /boot/initrd.img-* >/dev/null 2>&1; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$1" initramfs-tools
fi
rm -f /etc/systemd/system/systemd-udevd.service /etc/systemd/system/systemd-udev-trigger.service
mkdir -p /etc/systemd/network
printf '[Match]\\nName=en* eth*\\n[Network]\\nDHCP=yes\\n' >/etc/systemd/network/80-dhcp.network
systemctl enable systemd-networkd
ln -sf /dev/null /etc/systemd/system/systemd-networkd-wait-online.service
printf '/dev/vda / ext4 defaults 0 1\\n' >/etc/fstab
"""


class MachineError(Exception):
    """A machine cannot be made or booted; the message says why."""


def missing_tools() -> list[str]:
    """Return the programs that are needed and absent."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def boot_machine(
    image: str,
    folder: Path,
    port: int,
    *,
    public_key: Path,
    hostname: str,
    kernel_package: str,
    is_sealed: bool = False,
) -> subprocess.Popen[bytes]:
    """Turn an image's tree into a disk and boot its newest kernel.

    Args:
        image: Image of a node, with or without a kernel; it stays as it is.
        folder: Where disk, kernel, console and the process id are kept.
        port: Port of this machine that leads to the node's ssh server.
        public_key: Key root is reached with.
        hostname: What the machine calls itself.
        kernel_package: Package of a kernel image, for a tree that has none (``linux-image-amd64``).
        is_sealed: Whether the tree is sealed as a machine image before, as Packer's last step does it.

    Raises:
        MachineError: A tool is absent, or a step failed.
    """
    if missing := missing_tools():
        raise MachineError(f"{', '.join(missing)} is not installed: on Debian, qemu-system-x86 and e2fsprogs bring it")
    folder.mkdir(parents=True, exist_ok=True)
    name = f"provision-machine-{os.getpid()}-{port}"
    _run(["docker", "run", "-d", "--name", name, "--hostname", hostname, image, "sleep", "infinity"])
    try:
        _run(["docker", "exec", name, "sh", "-c", SETTLE, "sh", kernel_package])
        if is_sealed:
            for script in ("seal.sh", "first-boot.sh"):
                _run(["docker", "cp", "-q", str(IMAGE_SCRIPTS / script), f"{name}:/opt/{script}"])
            _run(["docker", "exec", name, "sh", "/opt/seal.sh"])
        _run(["docker", "exec", "-i", name, "sh", "-c", _AUTHORIZE], text=public_key.read_text(encoding="utf-8"))
        listed = _run(["docker", "exec", name, "sh", "-c", "ls -v /boot/vmlinuz-* | tail -n 1"]).strip()
        release = listed.removeprefix("/boot/vmlinuz-")
        for source, target in ((f"vmlinuz-{release}", "kernel"), (f"initrd.img-{release}", "initrd")):
            _run(["docker", "cp", "-q", f"{name}:/boot/{source}", str(folder / target)])
        _write_disk(name, folder, hostname)
    finally:
        subprocess.run(["docker", "rm", "-f", "-v", name], check=False, capture_output=True)
    words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB)]
    words += ["-kernel", str(folder / "kernel"), "-initrd", str(folder / "initrd"), "-append", KERNEL_COMMAND]
    words += ["-drive", f"file={folder / 'disk'},if=virtio,format=raw,cache=unsafe"]
    words += ["-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net"]
    words += ["-display", "none", "-monitor", "none", "-serial", f"file:{folder / 'console.log'}"]
    with (folder / "qemu.log").open("wb") as log:
        machine = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (folder / "pid").write_text(str(machine.pid), encoding="utf-8")
    return machine


_AUTHORIZE = "umask 077; mkdir -p /root/.ssh && cat >/root/.ssh/authorized_keys"


def _write_disk(name: str, folder: Path, hostname: str) -> None:
    """Write the container's tree into a file system of its own, without mounting anything."""
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    with subprocess.Popen(["docker", "export", name], stdout=subprocess.PIPE) as export:
        _run(["tar", "-x", "-C", str(root)], stdin=export.stdout)
    if export.returncode:
        raise MachineError(f"docker export {name} ended with {export.returncode}")
    # The engine puts these into a running container, not into its tree.
    (root / ".dockerenv").unlink(missing_ok=True)
    (root / "etc/hostname").write_text(hostname + "\n", encoding="utf-8")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text(f"nameserver {NAME_SERVER}\n", encoding="utf-8")
    disk = folder / "disk"
    disk.unlink(missing_ok=True)
    _run(["truncate", "-s", DISK, str(disk)])
    _run(["mkfs.ext4", "-q", "-d", str(root), str(disk)])
    shutil.rmtree(root)


def halt_machine(folder: Path) -> None:
    """End the machine that was booted in a folder; nothing happens where none runs."""
    file = folder / "pid"
    if not file.exists():
        return
    pid = int(file.read_text(encoding="utf-8"))
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, sent)
        except ProcessLookupError:
            break
        end = time.monotonic() + HALT_SECONDS
        while time.monotonic() < end and Path(f"/proc/{pid}/exe").exists():
            time.sleep(0.2)
    file.unlink()
    (folder / "disk").unlink(missing_ok=True)


def _run(words: Sequence[str], text: str | None = None, stdin: object = None) -> str:
    settings = {"input": text} if text is not None else {"stdin": stdin or subprocess.DEVNULL}
    done = subprocess.run(words, check=False, capture_output=True, text=True, **settings)  # type: ignore[call-overload]
    if done.returncode:
        raise MachineError(f"{words[0]} {words[1]} ended with {done.returncode}: {done.stderr.strip()[-1500:]}")
    return str(done.stdout)


def _start(platform: Mapping[str, Any], key: Path) -> dict[str, Any]:
    """Boot one platform and return where it is, once its ssh server answers."""
    image = nodes.image_of(platform)
    if not image.endswith("-converged"):
        raise SystemExit(nodes.skip(f"{image} has no driver yet, and compiling one in an emulator takes an hour"))
    folder, port = nodes.ephemeral() / str(platform["name"]), nodes.free_port()
    public = key.with_suffix(".pub")
    machine = boot_machine(
        image,
        folder,
        port,
        public_key=public,
        hostname=platform["name"],
        kernel_package=platform["kernel"],
        is_sealed=bool(platform.get("sealed")),
    )
    end = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < end and machine.poll() is None:
        try:
            nodes.wait_for_ssh("127.0.0.1", port, platform["name"])
        except nodes.NodeError:
            continue
        place = {"address": "127.0.0.1", "user": "root", "port": port, "identity_file": str(key)}
        return {"instance": platform["name"], **place}
    console = (folder / "console.log").read_text(encoding="utf-8", errors="replace")[-1500:]
    raise MachineError(f"{platform['name']} did not come up; its console said:\n{console}")


def create() -> int:
    """Boot every platform."""
    if missing := missing_tools():
        return nodes.skip(f"{', '.join(missing)} is not installed")
    key = nodes.key_pair()
    nodes.write_instances([_start(platform, key) for platform in nodes.platforms()])
    return 0


def destroy() -> int:
    """Power off every platform."""
    for platform in nodes.platforms():
        halt_machine(nodes.ephemeral() / str(platform["name"]))
    config = Path(os.environ["MOLECULE_INSTANCE_CONFIG"])
    if config.exists():
        config.write_text("[]\n", encoding="utf-8")
    return 0


def main() -> int:
    """Do what the command line says; return the exit status."""
    try:
        return {"create": create, "destroy": destroy}[sys.argv[1]]()
    except (MachineError, nodes.NodeError) as error:
        nodes.say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
