"""Judge whether the frameworks of a lock have code for the GPUs of a node, before anything is installed.

Nothing about GPUs is decided here: the lock says of every build which compute capabilities it runs on and which it
lacks, as the solver judged them, and which GPU has which PCI device id.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["FilterModule"]

_KEPT = ("torch", "tensorflow", "jax", "python", "driver")
"""What of the lock's request stands in the way out; its CUDA and its GPUs are what the node is at odds with."""


def judge_code(
    gpus: Iterable[Mapping[str, Any]], lock: Mapping[str, Any], environments: Iterable[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Say for which GPUs of a node the environments have no code.

    Args:
        gpus: Those of ``gpu_facts_host``: rows with ``device``, four hexadecimal digits.
        lock: The lock: ``gpus``, ``devices``, ``compute_capabilities``, ``request``.
        environments: Those that the node is to have. Rows without ``builds``, of an older lock or of somebody's own,
            are not judged.

    Returns:
        ``problems``, each with its way out, and ``notes`` on what is not known.
    """
    problems: list[str] = []
    notes: list[str] = []
    kinds = _count_kinds(gpus, lock)
    environments = _rows(environments)
    silent = [str(row.get("name")) for row in environments if not _rows(row.get("builds"))]
    if kinds and silent:
        notes.append(
            f"nothing says which GPUs the environments {', '.join(silent)} were built for: a lock that is written "
            "again with `provision node lock` does"
        )
    for environment in environments:
        for build in _rows(environment.get("builds")):
            label = f"{build.get('framework')} {build.get('version')} ({build.get('variant')})"
            for kind in kinds:
                verdict = _has_code(kind["capabilities"], build)
                if verdict is False:
                    problems.append(
                        f"{label} in environment `{environment.get('name')}` has no code for {_name(kind)}: it was "
                        f"built for {_range(build)}. {_way_out(lock, kinds)}"
                    )
                elif verdict is None:
                    notes.append(f"whether {label} has code for {_name(kind)} is not known")
    return {"problems": problems, "notes": notes}


def find_contradictions(lock: Mapping[str, Any], profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return place and fault of builds in a profile that no GPU can use which the lock itself was made for."""
    found = []
    named = _list(_mapping(lock.get("stack")).get("architectures"))
    for row, environment in enumerate(_rows(_mapping(profile.get("frameworks")).get("environments"))):
        for number, build in enumerate(_rows(environment.get("builds"))):
            place = f".frameworks.environments[{row}].builds[{number}]"
            for architecture in map(str, named):
                capabilities = _mapping(lock.get("compute_capabilities")).get(architecture)
                if _has_code(_list(capabilities), build) is False:
                    found.append((place, f"was built for {_range(build)}, and the lock is for {architecture} GPUs"))
    return found


def _count_kinds(gpus: Iterable[Mapping[str, Any]], lock: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the kinds of GPU in a node, by device id: ``device``, ``names``, ``ids``, ``capabilities``, ``count``."""
    kinds: dict[str, dict[str, Any]] = {}
    for gpu in gpus:
        device = str(gpu.get("device")).lower()
        if device in kinds:
            kinds[device]["count"] += 1
            continue
        known = [row for row in _rows(lock.get("gpus")) if row.get("device") == device]
        architecture = _architecture(device, lock)
        # A GPU that the facts do not list has one of the capabilities of its architecture.
        capabilities = {str(row.get("compute_capability")) for row in known} or {
            str(item) for item in _mapping(lock.get("compute_capabilities")).get(architecture) or ()
        }
        kinds[device] = {
            "device": device,
            "names": [str(row.get("name")) for row in known] or [f"{architecture} GPU of PCI id 10de:{device}"],
            "ids": [str(row.get("id")) for row in known],
            "capabilities": sorted(capabilities, key=_order),
            "count": 1,
        }
    return [kinds[device] for device in sorted(kinds)]


def _architecture(device: str, lock: Mapping[str, Any]) -> str:
    number = int(device, 16)
    for row in _rows(lock.get("devices")):
        if int(row["first"], 16) <= number <= int(row["last"], 16):
            return str(row["architecture"])
    return "unknown"


def _has_code(capabilities: Iterable[str], build: Mapping[str, Any]) -> bool | None:
    """Tell whether a build runs on all of some compute capabilities (True), on none (False), or that it is open."""
    runs_on, lacks = ({str(item) for item in _list(build.get(key))} for key in ("runs_on", "lacks"))
    wanted = {str(item) for item in capabilities}
    if not wanted:
        return None
    return True if wanted <= runs_on else False if wanted <= lacks else None


def _name(kind: Mapping[str, Any]) -> str:
    name = " or ".join(kind["names"])
    capabilities = " or ".join(kind["capabilities"]) or "unknown"
    number = f"{kind['count']} × " if kind["count"] > 1 else "the "
    return f"{number}{name} of this node (compute capability {capabilities})"


def _range(build: Mapping[str, Any]) -> str:
    code = [str(item) for item in _list(build.get("code"))]
    if not code:
        return f"compute capability {build.get('minimum') or 'unknown'} and newer"
    branch = build.get("ptx_driver_branch")
    late = [item for item in code if item.startswith("compute_")] if branch else []
    suffix = f", and driver branch {branch} is the first that compiles {' '.join(late)}" if late else ""
    return " ".join(code) + suffix


def _way_out(lock: Mapping[str, Any], kinds: Iterable[Mapping[str, Any]]) -> str:
    words = ["provision", "node", "lock"]
    for kind in kinds:
        gpu = kind["ids"][0] if kind["ids"] else f"sm_{kind['capabilities'][0]}" if kind["capabilities"] else None
        words += ["--gpu", gpu.replace(".", "")] if gpu and gpu not in words else []
    request = _mapping(lock.get("request"))
    for name in _KEPT:
        if isinstance(request.get(name), str):
            # A build that was asked for by name, as in `2.9.1+cu128`, is the one that does not fit.
            words += [f"--{name}", request[name].partition("+")[0]]
    return (
        f"Lock for this GPU, in a group of its own: `{shlex.join(words)}` takes another CUDA build, or names the "
        "request that can be met. Or set `gpu_frameworks_enabled: false` for this host."
    )


def _order(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part.isdecimal())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in _list(value) if isinstance(row, Mapping)]


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {"gpu_code_judgement": judge_code}
