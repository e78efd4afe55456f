"""The roles as data: every task of every file, with what it is inside of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from playbook_files import PLAYBOOKS

ROLES = sorted(path for path in (PLAYBOOKS / "roles").glob("*") if path.is_dir())

KEYWORDS = frozenset(
    {
        *("action", "any_errors_fatal", "args", "async", "become", "become_flags", "become_method", "become_user"),
        *("changed_when", "check_mode", "collections", "connection", "debugger", "delay", "delegate_facts"),
        *("delegate_to", "diff", "environment", "failed_when", "ignore_errors", "ignore_unreachable", "listen"),
        *("local_action", "loop", "loop_control", "module_defaults", "name", "no_log", "notify", "poll", "port"),
        *("register", "remote_user", "retries", "run_once", "tags", "throttle", "timeout", "until", "vars", "when"),
    }
)
BLOCKS = ("block", "rescue", "always")


class _Loader(yaml.SafeLoader):
    """YAML with Ansible's own marks read as what they mark."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("!vault", lambda loader, node: loader.construct_scalar(node))


def load(path: Path) -> Any:
    """Return what a YAML file says."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader with two marks more


@dataclass(frozen=True, slots=True)
class Task:
    """One task, where it stands, and the conditions of the blocks around it."""

    role: str
    file: Path
    body: Mapping[str, Any]
    outer: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        return str(self.body.get("name", "unnamed"))

    @property
    def module(self) -> str:
        """The module or action it calls."""
        (found,) = [key for key in self.body if key not in KEYWORDS and not key.startswith("with_")] or ["?"]
        return found

    @property
    def arguments(self) -> Any:
        return self.body.get(self.module)

    @property
    def is_conditional(self) -> bool:
        """Whether itself or a block around it may be skipped, or loops over what may be empty."""
        return any("when" in layer or "loop" in layer for layer in (self.body, *self.outer))

    def __str__(self) -> str:
        return f"{self.role}/{self.file.parent.name}/{self.file.name}: {self.name}"


def tasks_of(role: Path, *folders: str) -> list[Task]:
    """Return every task of a role's folders, blocks opened."""
    files = sorted(file for folder in folders or ("tasks", "handlers") for file in (role / folder).glob("*.yml"))
    return [task for file in files for task in _open(role.name, file, load(file) or [], ())]


def _open(role: str, file: Path, rows: list[Any], outer: tuple[Mapping[str, Any], ...]) -> Iterator[Task]:
    for row in rows:
        inner = [part for part in BLOCKS if part in row]
        if not inner:
            yield Task(role, file, row, outer)
        for part in inner:
            yield from _open(role, file, row[part] or [], (*outer, row))


@cache
def specs_of(role: Path) -> dict[str, Any]:
    """Return entry point → its specification."""
    path = role / "meta" / "argument_specs.yml"
    return load(path)["argument_specs"] if path.is_file() else {}


@cache
def defaults_of(role: Path) -> dict[str, Any]:
    """Return variable → default."""
    path = role / "defaults" / "main.yml"
    return (load(path) or {}) if path.is_file() else {}


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text inside of a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from strings_in(key)
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def mappings_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping inside of a value, itself included."""
    if isinstance(value, Mapping):
        yield value
        for inner in value.values():
            yield from mappings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from mappings_in(inner)


def variables_in(text: str, prefix: str = "gpu_") -> set[str]:
    """Return the names with a prefix that a text uses and that are no filter, key or part of a path."""
    return set(re.findall(rf"(?<![\w./'\"|-])(?<!\| ){prefix}\w+", text))
