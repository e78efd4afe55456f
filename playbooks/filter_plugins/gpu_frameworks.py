"""Filters that decide, on the controller, which Python environments a node lacks and which lists are refused."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

BASE = "/opt/provision/envs"
LISTS = "/opt/provision/etc/requirements"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_FOLDER = re.compile(r"(?P<name>.+)-(?P<digest>[0-9a-f]{12})")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")
_PYTHON = re.compile(r"\d+\.\d+|/[\w./+-]+|")
_HASH = re.compile(r"\s--hash=sha256:[0-9a-f]{64}(?=\s|$)")
_PROJECT = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(\[[A-Za-z0-9._, -]*\])?")
_PIN = re.compile(r"\s*==\s*(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)\s*(;.*)?")
_LINK = re.compile(r"\s*@\s*(?P<address>(https|file)://[^\s;]+)\s*(;.*)?")


def read_requirements(text: str) -> tuple[dict[str, str], list[str]]:
    """Read a list of hashed requirements.

    Args:
        text: One requirement an entry, ``name==version`` or ``name @ https://…``, each with its sha256. A backslash
            at the end of a line joins it with the next.

    Returns:
        Project (as the index spells it) → its entry on one line, in the order given, and what is wrong with the rest.
    """
    entries: dict[str, str] = {}
    problems = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        entry = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
        if not entry:
            continue
        shown = f"`{_redacted(entry[:80])}`"
        if entry.startswith("-"):
            problems.append(f"{shown} is an option of pip; only requirements with hashes may stand here")
            continue
        body = _HASH.sub("", entry)
        project = _PROJECT.match(body)
        if project is None or any(ord(char) < 32 or ord(char) == 127 for char in entry):
            problems.append(f"{shown} is not a requirement")
            continue
        rest = body[project.end() :]
        if not _PIN.fullmatch(rest) and not _LINK.fullmatch(rest):
            problems.append(f"{shown} is not pinned; write name==version or name @ https://…")
        elif not _HASH.search(entry):
            problems.append(f"{shown} has no hash; add --hash=sha256:… (`pip-compile --generate-hashes` does)")
        else:
            name = re.sub(r"[-_.]+", "-", project[1]).lower()
            if entries.get(name, entry) != entry and ";" not in entry:
                problems.append(f"`{name}` is listed twice, and differently")
            # One project may have an entry for each of several markers.
            entries[name] = entry if name not in entries or entries[name] == entry else f"{entries[name]}\n{entry}"
    return entries, problems


def plan_environments(
    environments: Iterable[Mapping[str, Any]],
    extra: Iterable[Mapping[str, Any]],
    python: str,
    host: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the environments that a node should have, and what it has of them.

    Args:
        environments: Those of the lock: ``name``, ``requirements``, ``imports``, ``versions``.
        extra: What the user adds: ``environment`` (a name of the lock, or a new one), ``requirements``, ``imports``.
        python: Minor version or path of the interpreter.
        host: What gpu_facts collected.

    Raises:
        AnsibleFilterError: Something is refused; the message lists everything that is.
    """
    rows, problems = _combine(environments, extra, python)
    if problems:
        raise AnsibleFilterError("the environments cannot be built:\n" + "\n".join(f"- {line}" for line in problems))
    there = {row["name"]: row for row in host.get("environments", ())}
    for row in rows:
        found = there.get(row["folder"], {})
        row["is_complete"] = bool(found.get("is_complete"))
        row["is_current"] = host.get("links", {}).get(row["link"], "").rstrip("/").rpartition("/")[2] == row["folder"]
    return rows


def list_problems(
    environments: Iterable[Mapping[str, Any]], extra: Iterable[Mapping[str, Any]], python: str
) -> list[str]:
    """Return everything for which :func:`plan_environments` would refuse, for the list of preflight."""
    return _combine(environments, extra, python)[1]


def list_leftovers(plan: Iterable[Mapping[str, Any]], host: Mapping[str, Any], keep: int) -> list[str]:
    """Return folders that may go: builds that never ended, and more than ``keep`` finished ones of a planned name."""
    planned = {row["folder"] for row in plan}
    names = {row["name"] for row in plan}
    broken, finished = [], dict.fromkeys(names, 0)
    for row in host.get("environments", ()):
        match = _FOLDER.fullmatch(row["name"])
        if not match or match["name"] not in names:
            continue
        if not row["is_complete"]:
            broken += [row["name"]] if row["name"] not in planned else []
        else:
            finished[match["name"]] += 1
    return sorted([*broken, *(name for name, count in finished.items() if count > max(keep, 1))])


def _combine(environments: Iterable[Any], extra: Iterable[Any], python: Any) -> tuple[list[dict[str, Any]], list[str]]:
    problems: list[str] = []
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        problems.append(f"gpu_frameworks_python: {python!r} is neither a minor version nor an absolute path")
    parts: dict[str, dict[str, Any]] = {}
    for source, given, key in (("lock", environments, "name"), ("gpu_frameworks_extra", extra, "environment")):
        for item in given:
            if not isinstance(item, Mapping) or not isinstance(item.get("requirements"), str):
                problems.append(f"{source}: {item!r} needs {key} and requirements (text)")
                continue
            name = item.get(key)
            if not isinstance(name, str) or not _NAME.fullmatch(name) or _FOLDER.fullmatch(name):
                problems.append(f"{source}: {name!r} is not a name of an environment (small letters, digits, . _ -)")
                continue
            entries, wrong = read_requirements(item["requirements"])
            problems += [f"{source}, environment {name}: {line}" for line in wrong]
            part = parts.setdefault(name, {"entries": {}, "imports": [], "versions": {}})
            for project, entry in entries.items():
                if part["entries"].setdefault(project, entry) != entry:
                    problems.append(f"{source}, environment {name}: `{project}` differs from what the lock has of it")
            for module in item.get("imports") or ():
                if not isinstance(module, str) or not _MODULE.fullmatch(module):
                    problems.append(f"{source}, environment {name}: {module!r} is not a name of a module")
                elif module not in part["imports"]:
                    part["imports"].append(module)
            for project, version in (item.get("versions") or {}).items():
                if not _PROJECT.fullmatch(str(project)) or not _VERSION.fullmatch(str(version)):
                    problems.append(f"{source}, environment {name}: {project!r}: {version!r} is not a version")
                else:
                    part["versions"][project] = version
    for name, part in parts.items():
        if not part["entries"] and not problems:
            problems.append(f"environment {name}: the list of requirements is empty")
    return [_row(name, part, python) for name, part in parts.items()], problems


def _row(name: str, part: Mapping[str, Any], python: str) -> dict[str, Any]:
    text = "".join(f"{entry}\n" for _, entry in sorted(part["entries"].items()))
    basis = json.dumps({"python": python, "requirements": text}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(basis.encode()).hexdigest()[:12]
    folder = f"{name}-{digest}"
    return {
        "name": name,
        "digest": digest,
        "folder": folder,
        "path": f"{BASE}/{folder}",
        "link": f"{BASE}/{name}",
        "list": f"{LISTS}/{folder}.txt",
        "file": {"path": f"{LISTS}/{folder}.txt", "content": text},
        "projects": sorted(part["entries"]),
        "imports": part["imports"],
        "versions": part["versions"],
        "python": python,
    }


def _redacted(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_environment_leftovers": list_leftovers,
            "gpu_environment_problems": list_problems,
            "gpu_environments": plan_environments,
        }
