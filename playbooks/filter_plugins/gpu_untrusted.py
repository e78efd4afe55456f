"""Look into locks and variables as anybody may have written them, without running what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2 import pass_context

__all__ = ["FilterModule"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_MULTILINE = ("requirements",)
"""Keys of a lock whose values are whole files; elsewhere a line end is hostile."""


@pass_context
def read_raw(context: Any, name: str) -> Any:
    """Return a variable as it was written, its templates not rendered.

    A lock is data: a template in one is an attack or an accident, and looking for it must not run it.

    Args:
        context: Jinja's, with the host's variables.
        name: Of the variable.

    Returns:
        Mappings, lists and scalars; None where there is no such variable.
    """
    try:
        return _unwrap(context.parent[name])
    except KeyError:
        return None


@pass_context
def read_variables(context: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the rendered values of variables; those that cannot be rendered yet are None.

    Args:
        context: Jinja's, with the host's variables.
        names: Of the variables.
    """
    values: dict[str, Any] = {}
    for name in names:
        try:
            values[name] = _render(context.parent[name])
        except Exception:  # A default may rest on what only a later role finds out: it is judged there.
            values[name] = None
    return values


def _render(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _render(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_render(item) for item in value]
    return value


def _unwrap(value: Any) -> Any:
    # The templating engine's lazy containers render what is taken out of them by their own methods, not by dict's.
    if isinstance(value, dict):
        return {str(key): _unwrap(item) for key, item in dict.items(value)}
    if isinstance(value, list):
        return [_unwrap(item) for item in list.__iter__(value)]
    if "Lazy" in type(value).__name__:
        return _unwrap(value.value)
    return value


def is_inert(lock: Any) -> bool:
    """Tell whether a lock, from :func:`read_raw`, is mere data, so that looking anything up in it runs nothing."""
    return not isinstance(lock, str) and next(find_hostile(lock, ""), None) is None


def find_hostile(value: Any, place: str) -> Iterator[tuple[str, str, Any]]:
    """Yield place, what and value of everything that no honest lock holds."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{place}.{key}" if place else str(key)
            if _TEMPLATE.search(str(key)) or _CONTROL.search(str(key)) or "\n" in str(key):
                yield place or ".", "a key that is not a name", key
            else:
                yield from find_hostile(item, inner)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from find_hostile(item, f"{place}[{number}]")
    elif isinstance(value, str):
        if _TEMPLATE.search(value):
            yield place, "a template", value
        elif _CONTROL.search(value):
            yield place, "control characters", value
        elif re.search(r"[\n\r\t]", value) and place.rpartition(".")[2] not in _MULTILINE:
            yield place, "more than one line", value
        elif re.search(r"(^|/)\.\.(/|$)", value):
            yield place, "a path that leaves its folder", value
    elif value is not None and not isinstance(value, bool | int | float):
        yield place, f"a {type(value).__name__}", value


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, and an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def is_match(pattern: re.Pattern[str], value: Any) -> bool:
    """Tell whether a value is text of a grammar, all of it."""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_is_inert": is_inert,
            "gpu_raw": read_raw,
            "gpu_variables": read_variables,
        }
