"""Judge the variables of a host: which no role knows, and which hold what no honest one does."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["FilterModule"]


def _neighbour(name: str) -> ModuleType:
    # Ansible loads filters by path, and puts none of their folders where Python would look for a neighbour.
    spec = spec_from_file_location(f"provision_filters_{name}", Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is not beside {Path(__file__).name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PROBLEMS, _UNTRUSTED = _neighbour("gpu_problems"), _neighbour("gpu_untrusted")
_problem = _PROBLEMS.word_problem
_mapping, _find_hostile = _UNTRUSTED.as_mapping, _UNTRUSTED.find_hostile

_PLAY_VARIABLES = (
    "gpu_become",
    "gpu_hosts",
    "gpu_nodes",
    "gpu_rollback_to",
    "gpu_rollout_all_or_nothing",
    "gpu_rollout_batches",
    "gpu_rollout_drain",
    "gpu_rollout_max_fail_percentage",
    "gpu_rollout_rollback",
    "gpu_rollout_undrain",
)
"""Variables of the playbooks themselves, which no role documents."""


def list_known_variables(roles: str) -> list[str]:
    """Return every variable that the roles document, and those that their tasks set for each other.

    Args:
        roles: Folder of the roles, on the controller.

    Returns:
        Names, sorted.
    """
    return list(_read_known(str(Path(roles).resolve())))


@lru_cache(maxsize=4)
def _read_known(roles: str) -> tuple[str, ...]:
    from ansible.module_utils.common.yaml import yaml_load

    known = set(_PLAY_VARIABLES)
    for path in sorted(Path(roles).glob("gpu_*/meta/argument_specs.yml")):
        specs = yaml_load(path.read_text(encoding="utf-8")) or {}
        for entry in _mapping(specs.get("argument_specs")).values():
            known.update(_mapping(entry.get("options")))
    folders = ("tasks", "defaults", "handlers", "vars")
    for path in sorted(path for folder in folders for path in Path(roles).glob(f"gpu_*/{folder}/**/*.yml")):
        text = path.read_text(encoding="utf-8")
        known.update(re.findall(r"^[ -]*(gpu_[a-z0-9_]+):", text, re.MULTILINE))
        known.update(re.findall(r"^\s+(?:register|loop_var|index_var): [\"']?(gpu_[a-z0-9_]+)", text, re.MULTILINE))
    # What the plays make for themselves before the preflight, as a rollback does. A collection has a folder for them.
    plays = [found for folder in ("", "playbooks/") for found in Path(roles).parent.glob(f"{folder}gpu[-_]node*.yml")]
    plays += [found for folder in ("", "playbooks/") for found in Path(roles).parent.glob(f"{folder}tasks/*.yml")]
    for path in sorted(plays):
        known.update(re.findall(r"\b(gpu_node_[a-z0-9_]+)\b", path.read_text(encoding="utf-8")))
    return tuple(sorted(known))


def list_variable_problems(values: Mapping[str, Any], known: Iterable[str], ignored: Iterable[str] = ()) -> list[str]:
    """Say which of a host's variables no role knows, and which hold what no honest one does.

    Args:
        values: Name → rendered value of every variable that begins with ``gpu_``.
        known: From :func:`list_known_variables`.
        ignored: Names that belong to somebody else.

    Returns:
        A sentence or two a problem, sorted by name.
    """
    names = set(known)
    problems = []
    for name in sorted(set(values) - set(ignored)):
        if name not in names:
            near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.75)
            problems.append(
                _problem(
                    f"No role knows the variable `{name}`",
                    (f"did you mean `{near[0]}`? Take that, " if near else "")
                    + "remove it, or name it in `gpu_preflight_ignored_variables` where it is yours",
                )
            )
            continue
        problems += [
            _problem(f"`{place}` holds {what}: {value!r:.60}", "write it as plain text")
            for place, what, value in _find_hostile(values[name], name)
            if what in ("a template", "control characters", "a path that leaves its folder")
        ]
    return problems


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_known_variables": list_known_variables,
            "gpu_variable_problems": list_variable_problems,
        }
