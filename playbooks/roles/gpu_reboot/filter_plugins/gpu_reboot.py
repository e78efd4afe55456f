"""Decide whether a node must be restarted, or whether loading its driver again is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FilterModule"]


def plan_reboot(
    host: Mapping[str, Any],
    profile: Mapping[str, Any],
    target: str,
    must_reload: bool,
    requests: Sequence[str],
) -> dict[str, list[str]]:
    """Return the reasons to load the driver again, and those that only a restart answers.

    Args:
        host: ``gpu_facts_host``, as it is after the driver was installed.
        profile: The lock's profile of this system.
        target: Kernel that is to run, empty where it is the one that runs.
        must_reload: Whether something changed that only a freshly loaded driver takes up.
        requests: Reasons for a restart that other roles gave.
    """
    reload: list[str] = []
    restart = list(requests)
    kernel = host["kernel"]
    if not host["os"]["is_container"] and target and kernel["running"] != target:
        restart.append(f"kernel {kernel['running']} runs, and {target} is the one to run")
    driver = profile.get("driver") or {}
    names = {row["module"] for row in (driver.get("flavours") or {}).values()}
    installed = [row for row in host["modules"].get(target or kernel["running"], ()) if row["name"] in names]
    loaded = host["module"]["version"]
    bound = [gpu for gpu in host["gpus"] if gpu["driver"] == "nouveau"]
    if bound:
        reload.append(f"nouveau has {', '.join(gpu['address'] for gpu in bound)}")
    if len(installed) == 1:
        found = installed[0]
        is_open = None if found["license"] is None else found["license"] != "NVIDIA"
        if loaded and loaded != found["version"]:
            reload.append(f"module {loaded} is loaded, and {found['version']} is installed")
        elif loaded and None not in (is_open, host["module"]["is_open"]) and is_open != host["module"]["is_open"]:
            reload.append("the other flavour of the module is loaded")
        elif not loaded and host["gpus"] and not bound:
            reload.append("no module is loaded for the GPUs")
    elif loaded and not installed:
        reload.append(f"module {loaded} is loaded, and none is installed")
    if must_reload and loaded:
        reload.append("options of the modules, or the driver itself, have changed")
    return {"reload": reload, "restart": restart}


def find_obstacle(host: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Say why neither the driver may be loaded again nor the node restarted, empty where nothing is in the way.

    Args:
        host: ``gpu_facts_host``, as it is now.
        settings: ``policy``, ``users`` (who works on the GPUs), ``is_drained``, ``is_busy_allowed``.
    """
    if host["os"]["is_container"]:
        return "a container has no kernel of its own"
    if settings["policy"] == "report":
        return "gpu_reboot_policy is report"
    users = list(settings["users"])
    if users and not settings["is_drained"] and not settings["is_busy_allowed"]:
        return (
            f"GPUs are in use by {', '.join(users[:8])}: drain the node first (gpu_rollout_drain), or set "
            "gpu_preflight_allow_busy to true"
        )
    return ""


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {"gpu_reboot_obstacle": find_obstacle, "gpu_reboot_plan": plan_reboot}
