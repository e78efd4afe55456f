"""Boot, reach, keep and destroy the nodes of a scenario: systemd in containers, or in systemd-nspawn without an engine.

``create`` and ``destroy`` are called by the plays of the same name. Molecule names the scenario's own files in its
environment; the nodes are the ``platforms`` of ``molecule.yml``::

    platforms:
      - name: bookworm
        release: bookworm        # molecule/shared/rootfs.sh makes it
        start_from: converged    # optional: begin with what the scenario `default` left, where that is there
        groups: [gpu_nodes]

Exit status: 0 done, 1 failed, 75 where the archive of a release does not answer, which is a reason to skip.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

SHARED = Path(__file__).resolve().parent
PREFIX = "provision-molecule-"
IMAGE = "provision-test/node"
LABEL = "provision.lock"
SKIPPED = 75
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
AUTHORITIES_ON_NODE = "/usr/local/share/provision-test/ca.pem"
BOOT_SECONDS = 60


class NodeError(Exception):
    """A node cannot be made or reached; the message says what to do."""


def run(words: Sequence[str], *, check: bool = True, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it said; its own words become the error."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, **settings)
    if check and done.returncode:
        raise NodeError(
            f"{shlex.join(words)} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done


def engine() -> str:
    """Return ``docker`` where an engine answers, else ``nspawn``; PROVISION_NODE_ENGINE decides otherwise.

    Raises:
        NodeError: Neither can be had.
    """
    asked = os.environ.get("PROVISION_NODE_ENGINE", "")
    if asked not in ("", "docker", "nspawn"):
        raise NodeError(f"PROVISION_NODE_ENGINE is `{asked}`: it is docker or nspawn")
    if asked != "nspawn" and shutil.which("docker") and not run(["docker", "info"], check=False).returncode:
        return "docker"
    if asked == "docker":
        raise NodeError("no container engine answers: start one, or unset PROVISION_NODE_ENGINE for systemd-nspawn")
    if os.geteuid() == 0 and shutil.which("systemd-nspawn"):
        return "nspawn"
    raise NodeError(
        "no container engine answers, and systemd-nspawn takes root and Debian's package systemd-container: "
        "start an engine (`sudo tools/engine.sh`) or install that package and run as root"
    )


def make_image(release: str, kind: str) -> str:
    """Return the image of a bare release, or the folder of its tree for systemd-nspawn, made where it is not there."""
    script = str(SHARED / "rootfs.sh")
    if kind == "docker":
        words, base = ["sh", script, release], None
    else:
        base = cache() / release
        if base.is_dir():
            return str(base)
        words = ["sh", script, release, "--tar", str(cache() / f"{release}.tar")]
    done = run(words, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode == SKIPPED:
        raise SystemExit(skip(f"{release}: {done.stderr.strip().splitlines()[-1]}"))
    if done.returncode:
        raise NodeError(f"the root file system of {release} could not be made: {done.stderr.strip()[-2000:]}")
    if base is None:
        return done.stdout.strip()
    part = base.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    run(["tar", "-xf", str(cache() / f"{release}.tar"), "-C", str(part)])
    (cache() / f"{release}.tar").unlink()
    part.rename(base)
    return str(base)


def cache() -> Path:
    """Return the folder that keeps root file systems between runs without an engine."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "provision-molecule"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(text: str) -> None:
    """Tell whoever runs the scenario."""
    sys.stderr.write(text + "\n")


def skip(reason: str) -> int:
    """Leave the reason where the runner finds it, and return the status that says so."""
    say(f"skipped: {reason}")
    if folder := os.environ.get("PROVISION_MOLECULE_RECORDS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "skipped.txt").write_text(reason + "\n", encoding="utf-8")
    return SKIPPED


def ephemeral() -> Path:
    """Return the scenario's own folder, which molecule names."""
    return Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])


def scenario() -> str:
    """Return the scenario's name."""
    return os.environ["MOLECULE_SCENARIO_NAME"]


def platforms() -> list[dict[str, Any]]:
    """Return the nodes that molecule.yml asks for."""
    return list(yaml.safe_load(Path(os.environ["MOLECULE_FILE"]).read_text(encoding="utf-8"))["platforms"])


def container(name: str) -> str:
    """Return the container's name for a node of this scenario."""
    return f"{PREFIX}{scenario()}-{name}"


# What both kinds of node share ----------------------------------------------------------------------------------------


def key_pair() -> Path:
    """Make the key pair of this run and return the private half's path."""
    path = ephemeral() / "id"
    if not path.exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "provision-molecule", "-f", str(path)])
    return path


def wait_for_ssh(address: str, port: int, name: str) -> None:
    """Return when the node's ssh server says its name.

    Raises:
        NodeError: It did not within a minute.
    """
    end = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < end:
        try:
            with socket.create_connection((address, port), timeout=2) as line:
                if line.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise NodeError(f"{name} booted, but no ssh server answers at {address}:{port}")


def write_instances(nodes: Iterable[Mapping[str, Any]]) -> None:
    """Tell molecule where the nodes are; it writes its inventory from this."""
    Path(os.environ["MOLECULE_INSTANCE_CONFIG"]).write_text(yaml.safe_dump(list(nodes)), encoding="utf-8")


def instances() -> list[dict[str, Any]]:
    """Return the nodes as molecule was told."""
    return list(yaml.safe_load(Path(os.environ["MOLECULE_INSTANCE_CONFIG"]).read_text(encoding="utf-8")))


# Containers -----------------------------------------------------------------------------------------------------------


def image_of(platform: Mapping[str, Any]) -> str:
    """Return the image to start from: what an earlier scenario left, where that is wanted and there, or a bare one."""
    release = platform["release"]
    bare = make_image(release, "docker")
    wanted = platform.get("start_from")
    if not wanted or os.environ.get("PROVISION_MOLECULE_FRESH"):
        return bare
    kept = f"{IMAGE}:{release}-{wanted}"
    label = run(["docker", "image", "inspect", "-f", f'{{{{index .Config.Labels "{LABEL}"}}}}', kept], check=False)
    if not label.returncode:
        return kept
    say(f"{kept} is not there (the scenario default makes it): starting from {bare}")
    return bare


def start_container(platform: Mapping[str, Any], public: Path) -> dict[str, Any]:
    """Boot one node in a container and return where it is."""
    name = container(platform["name"])
    run(["docker", "rm", "-f", "-v", name], check=False)
    # systemd wants to mount; package scripts and DKMS want no filter of system calls that slows compilers down.
    words = ["docker", "run", "-d", "--name", name, "--hostname", platform["name"]]
    words += ["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN"]
    words += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
    words += ["--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec"]  # noqa: S108
    words += [word for extra in platform.get("engine_args", ()) for word in shlex.split(extra)]
    words += ["-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw"] if is_cgroup_v1() else ["--cgroupns", "private"]
    words += ["-e", "container=docker", image_of(platform), "/lib/systemd/systemd"]
    run(words)
    put(name, public.read_bytes(), "/root/.ssh/authorized_keys", "0600")
    if AUTHORITIES.exists():
        put(name, AUTHORITIES.read_bytes(), AUTHORITIES_ON_NODE, "0644")
    return located(platform["name"])


def is_cgroup_v1() -> bool:
    """Tell whether this machine still has the first kind of control groups, which systemd must be lent."""
    return not Path("/sys/fs/cgroup/cgroup.controllers").exists()


def put(name: str, content: bytes, path: str, mode: str) -> None:
    """Write a file in a container."""
    script = 'umask 077; mkdir -p "${1%/*}" && cat >"$1" && chmod "$2" "$1" && chmod go-w "${1%/*}"'
    words = ["docker", "exec", "-i", name, "sh", "-c", script, "sh", path, mode]
    done = subprocess.run(words, check=False, input=content, capture_output=True)
    if done.returncode:
        raise NodeError(f"{path} cannot be written in {name}: {done.stderr.decode()}")


def located(name: str) -> dict[str, Any]:
    """Return where a running node is reached, once its ssh server answers."""
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    address = run(["docker", "inspect", "-f", form, container(name)]).stdout.strip()
    wait_for_ssh(address, 22, name)
    return {"instance": name, "address": address, "user": "root", "port": 22, "identity_file": str(ephemeral() / "id")}


def commit(platform: Mapping[str, Any], suffix: str, label: str) -> str:
    """Keep a node as an image that later scenarios start from, and return its name."""
    image = f"{IMAGE}:{platform['release']}-{suffix}"
    words = ["docker", "commit", "--change", f"LABEL {LABEL}={label}", container(platform["name"]), image]
    run(words)
    return image


# systemd-nspawn -------------------------------------------------------------------------------------------------------


def tree(name: str) -> Path:
    """Return the folder that holds a node's layers."""
    return cache() / "nodes" / container(name)


def start_nspawn(platform: Mapping[str, Any], public: Path) -> dict[str, Any]:
    """Boot one node by systemd-nspawn over a copy-on-write tree, in this machine's network, and return where it is."""
    name = platform["name"]
    stop_nspawn(name)
    base, folder = make_image(platform["release"], "nspawn"), tree(name)
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True)
    layers = f"lowerdir={base},upperdir={folder}/upper,workdir={folder}/work"
    run(["mount", "-t", "overlay", "overlay", "-o", layers, str(folder / "root")])
    root = folder / "root"
    port = free_port()
    write(root / "root/.ssh/authorized_keys", public.read_text(encoding="utf-8"), 0o600)
    write(root / "etc/ssh/sshd_config.d/port.conf", f"Port {port}\nListenAddress 127.0.0.1\n", 0o644)
    if AUTHORITIES.exists():
        write(root / AUTHORITIES_ON_NODE.lstrip("/"), AUTHORITIES.read_text(encoding="utf-8"), 0o644)
    words = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--directory", str(root)]
    words += ["--machine", container(name), "--hostname", name, "--resolv-conf=copy-host", "--console=read-only"]
    log = (folder / "console.log").open("wb")
    booted = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (folder / "pid").write_text(str(booted.pid), encoding="utf-8")
    try:
        wait_for_ssh("127.0.0.1", port, name)
    except NodeError as error:
        said = (folder / "console.log").read_text(encoding="utf-8", errors="replace")[-1500:]
        raise NodeError(f"{error}; its console said:\n{said}") from error
    identity = str(ephemeral() / "id")
    return {"instance": name, "address": "127.0.0.1", "user": "root", "port": port, "identity_file": identity}


def write(path: Path, text: str, mode: int) -> None:
    """Write a file of a tree, in a folder that only root may enter where it had none."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def stop_nspawn(name: str) -> None:
    """Power a node off and remove its layers; nothing happens where it is not there."""
    folder = tree(name)
    if not folder.is_dir():
        return
    pid_file = folder / "pid"
    if pid_file.exists():
        # The process group was made for this node alone.
        subprocess.run(["kill", "--", f"-{pid_file.read_text()}"], check=False, capture_output=True)
        for _ in range(50):
            if not Path(f"/proc/{pid_file.read_text()}").exists():
                break
            time.sleep(0.2)
        else:
            subprocess.run(["kill", "-KILL", "--", f"-{pid_file.read_text()}"], check=False, capture_output=True)
    subprocess.run(["umount", "--lazy", str(folder / "root")], check=False, capture_output=True)
    shutil.rmtree(folder)


# The commands ---------------------------------------------------------------------------------------------------------


def create() -> int:
    """Boot every platform."""
    kind = engine()
    key = key_pair()
    start = start_container if kind == "docker" else start_nspawn
    for platform in platforms():
        make_image(platform["release"], kind)
    write_instances([start(platform, key.with_suffix(".pub")) for platform in platforms()])
    return 0


def destroy() -> int:
    """Remove every node of the scenario, whichever way it was booted."""
    for platform in platforms():
        if shutil.which("docker"):
            run(["docker", "rm", "-f", "-v", container(platform["name"])], check=False)
        stop_nspawn(platform["name"])
    config = Path(os.environ["MOLECULE_INSTANCE_CONFIG"])
    if config.exists():
        config.write_text("[]\n", encoding="utf-8")
    return 0


def keep(suffix: str) -> int:
    """Keep each node as ``provision-test/node:RELEASE-SUFFIX``; without an engine every scenario begins bare."""
    if engine() != "docker":
        say("no container engine: nothing is kept for other scenarios")
        return 0
    if os.environ.get("PROVISION_PLAYBOOKS"):
        say("made by other playbooks than the committed ones: nothing is kept for other scenarios")
        return 0
    lock = ephemeral() / "site/group_vars/gpu_nodes/provision_lock.yml"
    digest = json.loads(json.dumps(yaml.safe_load(lock.read_text(encoding="utf-8"))))["provision_lock"]["digest"]
    for platform in platforms():
        say(f"kept as {commit(platform, suffix, digest)}")
    return 0


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("create")
    commands.add_parser("destroy")
    commands.add_parser("engine")
    commands.add_parser("keep").add_argument("suffix")
    asked = parser.parse_args()
    try:
        if asked.command == "keep":
            return keep(asked.suffix)
        if asked.command == "engine":
            sys.stdout.write(engine() + "\n")
            return 0
        return create() if asked.command == "create" else destroy()
    except NodeError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
