"""Write the site of a scenario: its lock and its variables, in an inventory beside the one that molecule writes.

``scenario.yml`` beside ``molecule.yml`` says what the scenario wants::

    lock: [--driver, "535", --cuda, "12.1"]   # given to `provision node lock`; absent: the committed default lock
    stubs: true                               # stand-ins for what no archive here has, in place of their repository
    without: [frameworks]                     # sections of the lock that this scenario leaves out
    vars: {gpu_driver_flavour: open}          # for the group gpu_nodes
    host_vars: {good: {}}                     # for single nodes
    good_kernel: open                         # this node gets the newest kernel that its driver's module builds on
    files: {/etc/docker/daemon.json: "{}"}    # on every node before the first converge; null: not there

What a node that starts from another scenario's image has from a role already is taken away by ``null``, so that the
scenario's own converge must bring it, and its tests turn red without that role.

Where the archive has moved on from the exact version that the lock names, the node's own apt says so, and the newest of
the same branch is asked for by ``gpu_driver_version``, loudly.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nodes
import yaml

from provision.generate.node import lock_digest

REPOSITORY = Path(__file__).resolve().parents[2]
STUBS = "/opt/provision-stubs"
SYSTEMS = {"bookworm": "debian12", "trixie": "debian13", "jammy": "ubuntu22.04", "noble": "ubuntu24.04"}
_MADISON = r"""
set -eu
work=$(mktemp -d); mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -e '/^deb .* main *$/s/main *$/main contrib non-free non-free-firmware/' >"$work/sources"
set -- -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root
apt-get "$@" -qq update >&2
apt-cache "$@" QUESTION
rm -rf "$work"
"""


class LockError(Exception):
    """The scenario's lock cannot be made."""


def scenario_file(folder: Path) -> dict[str, Any]:
    """Return what a scenario says of itself."""
    return dict(yaml.safe_load((folder / "scenario.yml").read_text(encoding="utf-8")) or {})


def site() -> Path:
    """Return the folder of the scenario's inventory."""
    return nodes.ephemeral() / "site"


def dump(path: Path, value: Any) -> None:
    """Write YAML, and the folder around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\n" + yaml.safe_dump(value, sort_keys=False, width=1000), encoding="utf-8")


def make_lock(flags: list[str], path: Path) -> dict[str, Any]:
    """Let ``provision node lock`` answer, and return the lock.

    Raises:
        LockError: It refused; its own words say why.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "provision", "node", "lock", *flags, "-o", str(path)]
    words += ["--stack", str(nodes.ephemeral() / "provision.lock")]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=REPOSITORY)
    if done.returncode:
        fallback = os.environ.get("PROVISION_MOLECULE_LOCK")
        if not fallback:
            raise LockError(f"`provision node lock {' '.join(flags)}` ended with {done.returncode}: {done.stderr}")
        nodes.say(f"WARNING: using {fallback}: provision node lock said {done.stderr.strip()[:300]}")
        shutil.copy(fallback, path)
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))["provision_lock"])


def write_lock(lock: dict[str, Any], path: Path) -> None:
    """Write a lock that was altered for a test, with the digest of what it says now."""
    lock["digest"] = lock_digest(lock)
    dump(path, {"provision_lock": lock})


def words_to(instance: dict[str, Any]) -> list[str]:
    """Return the words that reach a node."""
    words = ["ssh", "-i", instance["identity_file"], "-p", str(instance["port"]), "-o", "StrictHostKeyChecking=no"]
    words += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"]
    return [*words, f"root@{instance['address']}"]


def serve_stubs(lock: dict[str, Any], lock_path: Path, profiles: Sequence[str]) -> dict[str, Any]:
    """Build the stand-ins, put them on every node, and let the lock's foreign repositories be theirs.

    Returns:
        The variables that the scenario needs for that.
    """
    folder = nodes.ephemeral() / "stubs"
    words = [sys.executable, str(nodes.SHARED / "stubs/build.py"), "--lock", str(lock_path), "--out", str(folder)]
    words += ["--key", str(nodes.ephemeral() / "gpg")]
    for profile in profiles:
        words += ["--profile", profile]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LockError(f"the stubs cannot be built: {done.stderr.strip() or done.stdout.strip()}")
    summary = json.loads(done.stdout)
    nodes.say(f"STUBS, no real packages: {' '.join(summary['stubs'])}")
    record(summary["stubs"])
    packed = subprocess.run(["tar", "-C", str(folder), "-cf", "-", "."], check=True, capture_output=True).stdout
    keys = {}
    for profile in profiles:
        for source in (lock["profiles"][profile].get("repos") or {}).get("sources") or []:
            # One folder for each: apt takes no two keys for one address.
            place = f"{STUBS}/{source['id']}"
            keys[source["id"]] = str(folder / "stubs.asc")
            source["uri"], source["suite"], source["components"] = f"file:{place}/", "./", []
            source["key"] = {"url": f"file:{place}/stubs.asc", "sha256": None, "fingerprint": summary["fingerprint"]}
    for name in keys:
        for instance in nodes.instances():
            script = f"mkdir -p {STUBS}/{name} && tar -xf - -C {STUBS}/{name} --no-same-owner"
            subprocess.run([*words_to(instance), script], check=True, input=packed)
    return {"gpu_repos_keys": keys} if keys else {}


def record(stubs: list[str]) -> None:
    """Leave the names of the stubs where the report finds them, beside those that are there."""
    if folder := os.environ.get("PROVISION_MOLECULE_RECORDS"):
        path = Path(folder, "stubs.json")
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        path.write_text(json.dumps([*known, *stubs]) + "\n", encoding="utf-8")


def ask_archive(instance: dict[str, Any], question: str) -> list[str]:
    """Return the lines that apt-cache answers on a node, all components of its archive included."""
    script = _MADISON.replace("QUESTION", question)
    done = subprocess.run([*words_to(instance), "sh", "-s"], check=False, input=script, capture_output=True, text=True)
    if done.returncode:
        raise LockError(f"the archive of {instance['instance']} does not answer: {done.stderr.strip()}")
    return done.stdout.splitlines()


def offered(instance: dict[str, Any], package: str) -> list[str]:
    """Return the versions of a package that the node's archive has, newest first."""
    lines = ask_archive(instance, f"madison {package}")
    return list(dict.fromkeys(line.split("|")[1].strip() for line in lines if line.count("|") >= 2))


def moved_on(lock: dict[str, Any], release: str, instance: dict[str, Any]) -> dict[str, str]:
    """Return the variables that ask for what the archive has, empty where it has what the lock names."""
    profile = lock["profiles"].get(SYSTEMS[release], {})
    driver = profile.get("driver")
    if not driver or profile.get("method") != "distro" or not SYSTEMS[release].startswith("debian"):
        return {}
    flavour = next(iter(driver["flavours"].values()))
    package, wanted = flavour["dkms_package"], driver["package_version"]
    versions = offered(instance, package)
    if wanted in versions:
        return {}
    branch = [version.partition("-")[0] for version in versions if version.startswith(f"{driver['branch']}.")]
    if not branch:
        raise SystemExit(nodes.skip(f"{release}'s archive has no {package} of branch {driver['branch']} any more"))
    nodes.say(f"WARNING: {release}'s archive has no {package} {wanted}; it has {', '.join(versions)}")
    nodes.say(f"WARNING: asking for gpu_driver_version={branch[0]} instead")
    return {"gpu_driver_version": branch[0]}


def good_kernel(lock: dict[str, Any], release: str, instance: dict[str, Any]) -> dict[str, str]:
    """Return the variables that pin the newest kernel of the archive which no fact excludes for the open module.

    Where the archive has none any more the proprietary module is asked for instead, loudly.
    """
    driver = lock["profiles"][SYSTEMS[release]]["driver"]["version"]
    limits = [row["kernel_first"] for row in lock["known_bad"] if row["driver"] == driver and row["flavour"] == "open"]
    listed = ask_archive(instance, "search --names-only '^linux-headers-[0-9].*[0-9]-amd64$'")
    kernels = [line.split()[0].removeprefix("linux-headers-") for line in listed if line.startswith("linux-headers-")]
    fit = [kernel for kernel in kernels if all(as_numbers(kernel) < as_numbers(limit) for limit in limits)]
    if not fit:
        nodes.say(f"WARNING: {release}'s archive has no kernel that open {driver} builds on: {', '.join(kernels)}")
        return {"gpu_driver_flavour": "proprietary"}
    chosen = max(fit, key=as_numbers)
    nodes.say(f"open {driver} is built on kernel {chosen}")
    return {"gpu_kernel_policy": "pin", "gpu_kernel_version": chosen}


def as_numbers(kernel: str) -> tuple[int, ...]:
    """Return the numbers that order a kernel's release."""
    return tuple(int(part) for part in re.findall(r"\d+", kernel.partition("-")[0])[:3])


def file_script(name: str, text: str | None) -> str:
    """Return the shell script that makes a file of what it reads, executable where that is a script.

    Args:
        name: The file's path.
        text: What it will read; None for a file that must not be there.
    """
    place = shlex.quote(name)
    if text is None:
        return f"rm -f -- {place}"
    mode = "755" if text.startswith("#!") else "644"
    return f"mkdir -p {shlex.quote(str(Path(name).parent))} && cat >{place} && chmod {mode} {place}"


def write_site() -> None:
    """Write hosts, group_vars and host_vars of the scenario."""
    said = scenario_file(Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"]))
    shutil.rmtree(site(), ignore_errors=True)
    dump(site() / "hosts.yml", {"gpu_nodes": {"hosts": {}}})
    variables = dict(said.get("vars") or {})
    wanted = [each for each in nodes.platforms() if "gpu_nodes" in each.get("groups", ())]
    systems = sorted({SYSTEMS[each["release"]] for each in wanted})
    path = site() / "group_vars/gpu_nodes/provision_lock.yml"
    if flags := said.get("lock"):
        lock = make_lock([str(flag) for flag in flags], path)
        for profile in lock["profiles"].values():
            profile.update(dict.fromkeys(said.get("without") or ()))
        if said.get("discover", True):
            by_name = {instance["instance"]: instance for instance in nodes.instances()}
            variables |= moved_on(lock, wanted[0]["release"], by_name[wanted[0]["name"]])
        write_lock(lock, path)
        if said.get("stubs"):
            variables |= serve_stubs(lock, path, systems)
            write_lock(lock, path)
    if variables:
        dump(site() / "group_vars/gpu_nodes/scenario.yml", variables)
    own = dict(said.get("host_vars") or {})
    if host := said.get("good_kernel"):
        by_name = {instance["instance"]: instance for instance in nodes.instances()}
        release = next(each["release"] for each in wanted if each["name"] == host)
        own[host] = {**own.get(host, {}), **good_kernel(lock, release, by_name[host])}
    for host, values in own.items():
        dump(site() / "host_vars" / f"{host}.yml", values)
    for instance in nodes.instances():
        for name, text in (said.get("files") or {}).items():
            subprocess.run([*words_to(instance), file_script(name, text)], check=True, input=text or "", text=True)


def main() -> int:
    """Write the site; return the exit status."""
    try:
        write_site()
    except (LockError, nodes.NodeError) as error:
        nodes.say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
