"""Filters that hold what somebody set against what the roles say they take, before a role is reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["FilterModule"]

_EVERY = {"all", "tagged"}


def list_value_problems(values: Mapping[str, Any], roles: str) -> list[str]:
    """Say which variables hold what their role does not take.

    Ansible compares the same at the start of each role, one role at a time: by then the roles before have changed the
    node.

    Args:
        values: Name → rendered value; None is one that cannot be told yet.
        roles: Folder of the roles, on the controller.

    Returns:
        Two sentences a problem, what and the way out, sorted by name.
    """
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

    problems = []
    options = _read_options(str(Path(roles).resolve()))
    for name in sorted(set(values) & set(options)):
        role, option = options[name]
        if (
            values[name] is None
            or not ArgumentSpecValidator({name: option}).validate({name: _outline(values[name])}).error_messages
        ):
            continue
        if "choices" in option:
            choices = ", ".join(str(word) for word in option["choices"])
            way = f"{role} takes one of {choices}. Write one of these, or leave it out."
        else:
            way = f"{role} takes a value of type {_kind(option)}. The README of that role says what it means."
        problems.append(f"`{name}` is {values[name]!r:.60}, and {way}")
    return problems


@lru_cache(maxsize=4)
def _read_options(roles: str) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Return variable → its role, and what Ansible compares a value with."""
    from ansible.module_utils.common.yaml import yaml_load

    options = {}
    for path in sorted(Path(roles).glob("gpu_*/meta/argument_specs.yml")):
        specs = yaml_load(path.read_text(encoding="utf-8")) or {}
        for name, option in (specs["argument_specs"]["main"].get("options") or {}).items():
            kept = {key: option[key] for key in ("type", "elements", "choices") if key in option}
            options[name] = (path.parents[1].name, kept)
    return options


def _outline(value: Any) -> Any:
    """Return what the types of a value and its items depend on; the validator copies all that it is given, in depth."""
    if isinstance(value, Mapping):
        return {}
    return [{} if isinstance(item, Mapping) else item for item in value] if isinstance(value, list) else value


def _kind(option: Mapping[str, Any]) -> str:
    return f"{option['type']} of {option['elements']}" if "elements" in option else str(option["type"])


def list_asked_parts(parts: Mapping[str, Iterable[str]], run: Iterable[str], skipped: Iterable[str]) -> list[str]:
    """Return the parts of the stack that a run with these tags reaches, in their order.

    Args:
        parts: Part → tags of its role.
        run: ``ansible_run_tags``.
        skipped: ``ansible_skip_tags``.
    """
    wanted, unwanted = set(run), set(skipped)
    return [part for part, tags in parts.items() if wanted & {*_EVERY, *tags} and not unwanted & {*_EVERY, *tags}]


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {"gpu_asked_parts": list_asked_parts, "gpu_value_problems": list_value_problems}
