"""Filters that turn MIG configurations into the document that nvidia-mig-parted reads, or refuse them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

FILE = "/etc/nvidia-mig-manager/provision.yaml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PROFILE = re.compile(r"\d+g\.\d+gb([+.][a-z0-9.+-]+)?|\d+c\.\d+g\.\d+gb([+.][a-z0-9.+-]+)?")
_KEYS = frozenset({"devices", "mig-enabled", "mig-devices", "device-filter"})

# They are the same on every GPU; a geometry depends on the GPU, so the user writes it.
_ALWAYS = {
    "all-disabled": [{"devices": "all", "mig-enabled": False}],
    "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
}


def write_document(configs: Mapping[Any, Any], chosen: str) -> str:
    """Return the document of all configurations, as JSON, which is YAML.

    Args:
        configs: Name → rows with ``devices``, ``mig-enabled``, ``mig-devices`` and ``device-filter``.
        chosen: The configuration that will be asked for; ``none`` for no choice.

    Raises:
        AnsibleFilterError: Something in it is refused; the message lists everything that is.
    """
    problems = []
    whole: dict[Any, Any] = {**_ALWAYS, **configs}
    for name, rows in whole.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(f"{name!r} is not a name of a configuration")
        elif not isinstance(rows, list) or not rows:
            problems.append(f"{name}: a configuration is a list of rows with devices and mig-enabled")
        else:
            problems += [f"{name}: {line}" for row in rows for line in _list_problems(row)]
    if chosen not in ("none", *whole):
        problems.append(f"gpu_mig_profile is {chosen!r}, and gpu_mig_configs has {', '.join(sorted(whole))}")
    if problems:
        raise AnsibleFilterError("gpu_mig_configs:\n" + "\n".join(f"- {line}" for line in problems))
    return json.dumps({"version": "v1", "mig-configs": whole}, indent=2, sort_keys=True) + "\n"


def is_due(host: Mapping[str, Any], wanted: Mapping[str, Any], devices: Iterable[str] = ()) -> bool:
    """Tell whether the partitions of a node are going to change, as far as its files show.

    Args:
        host: ``gpu_facts_host``.
        wanted: ``profile``, ``configs`` and ``capable`` of the role.
        devices: PCI ids of the GPUs that can be partitioned.
    """
    profile = str(wanted.get("profile") or "none")
    capable = str(wanted.get("capable", "auto")).lower()
    is_capable = (
        any(gpu.get("device") in set(devices) for gpu in host["gpus"]) if capable == "auto" else capable == "true"
    )
    if profile == "none" or not is_capable:
        return False
    try:
        text = write_document(wanted.get("configs") or {}, profile)
    except AnsibleFilterError:
        return False
    row = host["files"].get(FILE) or {}
    return bool(row.get("sha256") != hashlib.sha256(text.encode()).hexdigest())


def list_refusals(wanted: Mapping[str, Any]) -> list[str]:
    """Return what :func:`write_document` refuses, for preflight's list."""
    try:
        write_document(wanted.get("configs") or {}, str(wanted.get("profile") or "none"))
    except AnsibleFilterError as error:
        return [str(error)]
    return []


def _is_number(value: Any, least: int) -> bool:
    # Ansible's own numbers are a kind of int, and so is True.
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def list_strangers(busy: Iterable[Mapping[str, Any]], units: Iterable[str]) -> list[str]:
    """Return the processes on GPUs that do not belong to services which are stopped for the change, as text.

    Args:
        busy: Rows with ``pid`` and ``command``, of which the kernel tells fifteen letters.
        units: The services that are stopped.
    """
    known = {unit.removesuffix(".service")[:15] for unit in units}
    if "nvidia-dcgm" in known:
        known.add("nv-hostengine")
    return [f"{row['command']} ({row['pid']})" for row in busy if row["command"] not in known]


def _list_problems(row: Any) -> list[str]:
    if not isinstance(row, Mapping):
        return [f"{row!r} is not a row with devices and mig-enabled"]
    problems = [f"unknown key {key!r}" for key in row if key not in _KEYS]
    devices = row.get("devices")
    is_list = isinstance(devices, list) and devices and all(_is_number(item, 0) for item in devices)
    if devices != "all" and not is_list:
        problems.append(f"devices: {devices!r} is neither all nor a list of numbers")
    if not isinstance(row.get("mig-enabled"), bool):
        problems.append(f"mig-enabled: {row.get('mig-enabled')!r} is neither true nor false")
    instances = row.get("mig-devices", {})
    if not isinstance(instances, Mapping):
        return [*problems, f"mig-devices: {instances!r} is not a mapping of profiles to counts"]
    for profile, count in instances.items():
        if not isinstance(profile, str) or not _PROFILE.fullmatch(profile):
            problems.append(f"mig-devices: {profile!r} is not a profile such as 1g.10gb")
        if not _is_number(count, 1):
            problems.append(f"mig-devices: {profile}: {count!r} is not a count")
    if instances and row.get("mig-enabled") is False:
        problems.append("mig-devices are given, and mig-enabled is false")
    return problems


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_mig_document": write_document,
            "gpu_mig_is_due": is_due,
            "gpu_mig_refusals": list_refusals,
            "gpu_mig_strangers": list_strangers,
        }
