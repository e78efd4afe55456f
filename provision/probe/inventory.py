"""Lists of machines: an Ansible inventory read by Ansible itself, or a file with one target a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provision.errors import MissingDependencyError, UsageError, install_command
from provision.probe.targets import Target, parse_jump, parse_target
from provision.records import record

_SECONDS = 120
_HOSTS_MAX = 100_000
_SHARD = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")
_CONTAINERS = {"docker": "docker", "docker_api": "docker", "podman": "podman"}
_SSH = ("ssh", "smart", "paramiko", "paramiko_ssh")
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")


@record
class Inventory:
    """What a list of machines holds.

    Attributes:
        targets: In the order of the list, none twice.
        notes: What stands there and is not taken over, one sentence each.
    """

    targets: tuple[Target, ...]
    notes: tuple[str, ...] = ()


def parse_hosts(text: str, where: str) -> tuple[Target, ...]:
    """Read one target a line; ``#`` starts a comment.

    Args:
        text: The lines.
        where: What they were read from, for the message.

    Raises:
        UsageError: A line is not a target, or there is none at all.
    """
    targets: dict[str, Target] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 1:
            raise UsageError(
                f"{where}, line {number}: one target a line",
                hints=("an Ansible inventory is read with `--inventory`",),
            )
        if words[0].startswith("[") and words[0].endswith("]") and ":" not in words[0]:
            raise UsageError(
                f"{where}, line {number}: this looks like an Ansible inventory", hints=("read it with `--inventory`",)
            )
        try:
            target = parse_target(words[0])
        except UsageError as error:
            raise UsageError(
                f"{where}, line {number}: {error.message}", because=error.because, hints=error.hints
            ) from None
        targets.setdefault(target.name, target)
    if not targets:
        raise UsageError(f"{where} names no target")
    return tuple(targets.values())


def take_shard(targets: Sequence[Target], shard: str) -> tuple[Target, ...]:
    """Return every N-th target, so that several controllers share the work.

    Args:
        targets: All of them.
        shard: ``I/N``: the I-th of N parts, counted from 1.

    Raises:
        UsageError: It is not written like this.
    """
    found = _SHARD.fullmatch(shard)
    part, parts = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    if not 1 <= part <= parts:
        raise UsageError(
            f"--shard `{shard[:40]!s}` is not part of a whole".replace("\n", " "),
            hints=("write `--shard 1/4` for the first of four parts",),
        )
    return tuple(targets[part - 1 :: parts])


def read_inventory(path: Path, limit: str | None = None) -> Inventory:
    """Read an inventory with ``ansible-inventory``: every form Ansible reads, groups and patterns included.

    Args:
        path: File, folder or script of the inventory.
        limit: Pattern of hosts, as ``--limit`` of Ansible takes it.

    Raises:
        MissingDependencyError: ansible-core is not installed.
        UsageError: Ansible cannot read it, nothing matches, or a variable has no meaning here.
    """
    document = _list(path, limit)
    metadata = document.get("_meta")
    variables = metadata.get("hostvars", {}) if isinstance(metadata, dict) else {}
    names = _names(document)
    if not names:
        pattern = f" matches `{limit}`" if limit else " is listed"
        raise UsageError(f"{path}: no host{pattern}", hints=("`ansible-inventory --graph` shows what it has",))
    if len(names) > _HOSTS_MAX:
        raise UsageError(f"{path}: more than {_HOSTS_MAX} hosts", hints=("choose some with `--limit`",))
    notes: dict[str, None] = {}
    targets = tuple(_to_target(name, variables.get(name, {}), f"{path}: `{name}`", notes) for name in names)
    return Inventory(targets=targets, notes=tuple(notes))


def _list(path: Path, limit: str | None) -> Mapping[str, Any]:
    import json
    import os
    import subprocess

    from provision.probe.clean import clean_line
    from provision.probe.redact import redact

    if not path.exists():
        raise UsageError(f"--inventory: {path} does not exist")
    if limit is not None and (limit.startswith("-") or not limit.isprintable() or not limit):
        raise UsageError(f"--limit `{limit[:40]!a}` is not a pattern of hosts", hints=("write `--limit 'gpu:&rack1'`",))
    argv = [_program(), "--inventory", str(path.resolve()), "--list"]
    if limit is not None:
        argv.append(f"--limit={limit}")
    environment = os.environ | {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_LOCALHOST_WARNING": "0"}
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{path}: ansible-inventory did not end within {_SECONDS} s") from error
    except OSError as error:
        raise MissingDependencyError(
            "`ansible-inventory` cannot be started", because=(error.strerror or str(error),)
        ) from error
    said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    failures = [line for line in said if "ERROR" in line] or said[-1:]
    if done.returncode != 0:
        because = tuple(redact(clean_line(line)) for line in failures[:3])
        raise UsageError(f"{path}: ansible-inventory cannot read it", because=because)
    refused = [line for line in said if "Failed to parse" in line or "Unable to parse" in line]
    try:
        document = json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: ansible-inventory answered no JSON") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: ansible-inventory answered no JSON object")
    if refused and not _names(document):
        raise UsageError(f"{path} is not an inventory", because=(redact(clean_line(refused[0])),))
    return document


def _program() -> str:
    import sys
    from shutil import which

    beside = Path(sys.executable).with_name("ansible-inventory")
    found = str(beside) if beside.is_file() else which("ansible-inventory")
    if not found:
        raise MissingDependencyError(
            "an inventory is read by ansible-core, which is not installed",
            hints=(install_command("ansible"), "or write one target a line and name it with `--hosts`"),
        )
    return found


def _names(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return every host once, in the order in which the groups name them."""
    names: dict[str, None] = {}
    seen: set[str] = set()

    def walk(group: str) -> None:
        if group in seen:
            return
        seen.add(group)
        entry = document.get(group)
        if isinstance(entry, dict):
            names.update(dict.fromkeys(str(host) for host in entry.get("hosts", ())))
            for child in entry.get("children", ()):
                walk(str(child))

    for group in ("all", *document):
        if group != "_meta":
            walk(group)
    return tuple(names)


def _to_target(name: str, variables: Mapping[str, Any], where: str, notes: dict[str, None]) -> Target:
    """Return the target that Ansible's connection variables describe."""
    text = {key: str(value) for key, value in variables.items() if isinstance(value, (str, int))}
    for key, value in text.items():
        if "{{" in value and key.startswith("ansible_") and key in _USED:
            raise UsageError(
                f"{where}: {key} is a template, which only a playbook fills in", hints=("write its value out",)
            )
    host = text.get("ansible_host") or text.get("ansible_ssh_host") or name
    connection = (text.get("ansible_connection") or "ssh").rpartition(".")[2]
    made = _connect(name, host, connection, text, where)
    fields: dict[str, Any] = {"name": name, "expect": _expect(variables, where)}
    if made.kind == "ssh":
        fields |= _ssh_fields(text, where, notes)
    from provision.records import replace

    return replace(made, **fields)


_USED = frozenset(
    {
        "ansible_connection",
        "ansible_host",
        "ansible_port",
        "ansible_ssh_host",
        "ansible_ssh_port",
        "ansible_ssh_private_key_file",
        "ansible_ssh_user",
        "ansible_user",
        *_ARGUMENTS,
    }
)


def _connect(name: str, host: str, connection: str, text: Mapping[str, str], where: str) -> Target:
    is_local_name = _is_loopback(name) and "ansible_host" not in text
    if connection == "local" or (is_local_name and "ansible_connection" not in text):
        return Target(name=name, kind="local")
    try:
        if connection in _SSH:
            user = text.get("ansible_user") or text.get("ansible_ssh_user") or ""
            port = text.get("ansible_port") or text.get("ansible_ssh_port") or ""
            address = f"[{host}]" if host.count(":") > 1 else host
            return parse_target(f"ssh://{user}{'@' if user else ''}{address}{':' if port else ''}{port}")
        if connection in _CONTAINERS:
            return parse_target(f"{_CONTAINERS[connection]}://{host}")
        if connection == "kubectl":
            pod = "/".join(filter(None, (text.get("ansible_kubectl_namespace"), text.get("ansible_kubectl_pod"))))
            settings = {
                "container": text.get("ansible_kubectl_container"),
                "context": text.get("ansible_kubectl_context"),
            }
            query = "&".join(f"{key}={value}" for key, value in settings.items() if value)
            return parse_target(f"kubectl://{pod}{'?' if query else ''}{query}")
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", because=error.because) from None
    raise UsageError(
        f"{where}: ansible_connection `{connection[:40]}` is not known here",
        hints=("known are ssh, local, docker, podman and kubectl",),
    )


def _is_loopback(name: str) -> bool:
    """Tell whether a host without more words is this machine, which Ansible reaches without ssh."""
    from ipaddress import ip_address

    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _expect(variables: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what the host must have; the names in it are judged where they are used."""
    expect = variables.get("provision_expect", {})
    if not isinstance(expect, dict) or not all(isinstance(key, str) for key in expect):
        raise UsageError(f"{where}: provision_expect must be a mapping", hints=("write `provision_expect: {gpus: 8}`",))
    gpus = variables.get("provision_gpus")
    if gpus is None:
        return dict(expect)
    # An inventory in INI form holds every number as text.
    if isinstance(gpus, str) and re.fullmatch(r"[0-9]{1,4}", gpus):
        gpus = int(gpus)
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
        raise UsageError(f"{where}: provision_gpus must be a whole number", hints=("write `provision_gpus: 8`",))
    if expect.get("gpus", gpus) != gpus:
        raise UsageError(f"{where}: provision_gpus and provision_expect name two numbers of GPUs")
    return {**expect, "gpus": gpus}


def _ssh_fields(text: Mapping[str, str], where: str, notes: dict[str, None]) -> dict[str, str]:
    """Return identity, jump hosts and configuration; arguments with another meaning are reported, not passed on."""
    import shlex

    fields: dict[str, str] = {}
    key = text.get("ansible_ssh_private_key_file") or text.get("ansible_private_key_file")
    if key:
        fields["identity"] = _file(key, where)
    words: list[str] = []
    for name in _ARGUMENTS:
        try:
            words += shlex.split(text.get(name, ""))
        except ValueError as error:
            raise UsageError(f"{where}: {name} has an open quote") from error
    while words:
        word = words.pop(0)
        flag, value = word[:2], word[2:]
        if flag in ("-o", "-J", "-F", "-i") and not value and words:
            value = words.pop(0)
        if flag == "-o":
            option, _, setting = value.replace(" ", "=", 1).partition("=") if "=" not in value else value.partition("=")
            jump = setting if option.lower() == "proxyjump" else _jump_of_command(option, setting)
            if jump:
                fields["jump"] = parse_jump(jump)
            elif option.lower() == "identityfile":
                fields.setdefault("identity", _file(setting, where))
            elif option.lower() not in _OWN_OPTIONS:
                notes[
                    f"ssh option `{option[:40]}` of the inventory is not taken over; `--ssh-config FILE` can hold it"
                ] = None
        elif flag == "-J":
            fields["jump"] = parse_jump(value)
        elif flag == "-F":
            fields["config"] = _file(value, where)
        elif flag == "-i":
            fields.setdefault("identity", _file(value, where))
        elif word not in ("-C", "-4", "-6", "-q", "-T"):
            notes[f"ssh argument `{word[:40]}` of the inventory is not taken over"] = None
    return {name: str(Path(value).expanduser()) if name != "jump" else value for name, value in fields.items()}


_OWN_OPTIONS = frozenset({
    "batchmode", "connecttimeout", "controlmaster", "controlpath", "controlpersist", "forwardagent", "loglevel",
    "preferredauthentications", "serveralivecountmax", "serveraliveinterval",
})  # fmt: skip
"""What this program sets itself, or leaves to the user's configuration on purpose."""

_W_COMMAND = re.compile(
    r"ssh(?:\s+-[qTC])*\s+-W\s+\[?%h\]?:%p(?:\s+-[qTC])*\s+(?:-p\s*([0-9]{1,5})\s+)?([A-Za-z0-9@._-]{1,255})\s*"
    r"|ssh(?:\s+-[qTC])*\s+([A-Za-z0-9@._-]{1,255})\s+-W\s+\[?%h\]?:%p\s*"
)


def _jump_of_command(option: str, setting: str) -> str:
    """Return the jump host of the usual ``ProxyCommand``, and nothing for one that does more."""
    if option.lower() != "proxycommand":
        return ""
    found = _W_COMMAND.fullmatch(setting)
    if not found:
        return ""
    host = found.group(2) or found.group(3)
    if host.startswith("-"):
        return ""
    return f"{host}:{found.group(1)}" if found.group(1) else host


def _file(text: str, where: str) -> str:
    if not text or text.startswith("-") or not text.isprintable():
        raise UsageError(f"{where}: `{text[:60]!a}` is not a file name")
    return text
