"""The one program that works on a node: what it is sent, and which run of Ansible asks."""

from __future__ import annotations

import base64
import getpass
import json
import multiprocessing
import os
import socket
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["FilterModule"]

_PROGRAM = "roles/gpu_facts/files/node.py"


def write_program(request: Mapping[str, Any], host: Mapping[str, Any] | None = None) -> str:
    """Return what a Python on the node reads on its standard input.

    Args:
        request: ``do`` and what that command takes, as ``roles/gpu_facts/files/node.py`` says.
        host: ``gpu_facts_host``, for commands that change the node: a run that has changed it since this one looked is
            noticed, and one that is known to be over waits for nobody.
    """
    work = (host or {}).get("work") or {}
    owner = work.get("owner") or {}
    more = {
        "run": name_run(),
        "over": [owner["id"]] if is_over(owner) else [],
        "seen": work.get("number", 0) if host else None,
    }
    text = base64.b64encode(json.dumps({"lock_seconds": 0, **request, **more}).encode()).decode()
    return f'REQUEST = "{text}"\n{_read_program()}'


@lru_cache(maxsize=1)
def _read_program() -> str:
    """Return the program's text: roles are beside the filters in a clone, and two folders up in a collection."""
    paths = (folder / _PROGRAM for folder in Path(__file__).resolve().parents)
    return next(path for path in paths if path.is_file()).read_text(encoding="utf-8")


def find_other_run(host: Mapping[str, Any]) -> str:
    """Return what another run is doing on a node, in words; empty where none is, or one that is over.

    Args:
        host: ``gpu_facts_host``.
    """
    work = host.get("work") or {}
    owner = work.get("owner") or {}
    if not owner or owner.get("id") == name_run()["id"] or is_over(owner):
        return ""
    return str(work["says"])


def has_orphan(host: Mapping[str, Any]) -> bool:
    """Tell whether a program is still at work on a node whose run is over."""
    work = host.get("work") or {}
    return bool(work.get("is_busy")) and not find_other_run(host)


def is_over(owner: Mapping[str, Any]) -> bool:
    """Tell whether a run is known to have ended: it was one of this machine, and its process is not there any more.

    Args:
        owner: What :func:`name_run` gave it.
    """
    own = name_run()
    is_here = bool(owner.get("space")) and owner["space"] == own["space"] and owner.get("started") is not None
    return is_here and owner.get("id") != own["id"] and _started(int(owner["pid"])) != owner["started"]


def name_run() -> dict[str, Any]:
    """Return ``id``, ``who``, ``pid``, ``started`` and ``space`` of this run of Ansible, the same in all its tasks."""
    # Tasks are templated in processes of their own.
    parent = multiprocessing.parent_process()
    return dict(_describe(os.getpid() if parent is None else int(parent.pid or 0)))


@lru_cache(maxsize=4)
def _describe(pid: int) -> Mapping[str, Any]:
    name, started, space = socket.gethostname(), _started(pid), _space()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return {
        "id": f"{name}/{space}/{pid}/{started}",
        "who": f"{user}@{name}",
        "pid": pid,
        "started": started,
        "space": space,
    }


def _started(pid: int) -> str | None:
    """Return when a process was started, in ticks since the start of the machine; None where that cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _space() -> str | None:
    """Return what tells this machine's processes, or this container's, from those of others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_has_orphan": has_orphan,
            "gpu_node": write_program,
            "gpu_other_run": find_other_run,
        }
