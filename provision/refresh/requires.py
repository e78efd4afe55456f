"""Reduce ``Requires-Dist`` to what can still matter on Linux CPython."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

MINORS = tuple(f"3.{minor}" for minor in range(6, 17))
"""Pythons a marker is tried on; a comparison that never changes over them is decided."""
MACHINES = ("x86_64", "aarch64")
_PATCHES = (0, 1, 2, 3, 4, 5, 6, 99)
_LINUX = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_python_implementation": "CPython",
    "python_implementation": "CPython",
    "implementation_name": "cpython",
    "platform_release": "5",
    "platform_version": "",
}


@dataclass(frozen=True, slots=True)
class _Both:
    """``and``/``or`` over what could not be decided."""

    word: str
    parts: tuple[Any, ...]


def extras_of(requires_dist: Iterable[str]) -> set[str]:
    """Return the normalised extras that the markers of these requirements ask for."""
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item)
        elif isinstance(node, tuple) and str(node[0]) == "extra":
            found.add(canonicalize_name(node[2].value))

    for text in requires_dist:
        marker = Requirement(text).marker
        if marker is not None:
            walk(marker._markers)
    return found


def reduce_requires(
    requires_dist: Iterable[str], extras: Iterable[str], requires_python: str | None
) -> list[list[str]]:
    """Return ``[name, specifier, marker, extra]`` rows in the order of the metadata.

    Args:
        requires_dist: Lines of the metadata.
        extras: Normalised extras worth keeping.
        requires_python: The release's own bound: Pythons outside it decide nothing.
    """
    allowed = SpecifierSet(requires_python or "")
    minors = [minor for minor in MINORS if any(f"{minor}.{patch}" in allowed for patch in _PATCHES)] or list(MINORS)
    rows: list[list[str]] = []
    for text in requires_dist:
        requirement = Requirement(text)
        name = str(canonicalize_name(requirement.name))
        if requirement.extras:
            name = f"{name}[{','.join(sorted(canonicalize_name(extra) for extra in requirement.extras))}]"
        bound = ",".join(sorted(str(clause) for clause in requirement.specifier))
        plain = _residue(requirement.marker, "", minors)
        if plain is not False:
            rows.append([name, bound, _text(plain), ""])
            continue
        for extra in sorted(extras):
            left = _residue(requirement.marker, extra, minors)
            if left is not False:
                rows.append([name, bound, _text(left), extra])
    return [row for index, row in enumerate(rows) if row not in rows[:index]]


def _residue(marker: Marker | None, extra: str, minors: list[str]) -> Any:
    """Return ``True``, ``False`` or what is left of a marker once platform and extra are known."""
    if marker is None:
        return True
    by_machine = {
        machine: _reduce(marker._markers, {**_LINUX, "extra": extra, "platform_machine": machine}, minors)
        for machine in MACHINES
    }
    if by_machine["x86_64"] == by_machine["aarch64"]:
        return by_machine["x86_64"]
    parts = []
    for machine, left in by_machine.items():
        only = f'platform_machine == "{machine}"'
        if left is not False:
            parts.append(_join("and", [left, only]))
    return _join("or", parts)


def _reduce(node: Any, known: dict[str, str], minors: list[str]) -> Any:
    if isinstance(node, list):
        alternatives: list[list[Any]] = [[]]
        for item in node:
            if item == "or":
                alternatives.append([])
            elif item != "and":
                alternatives[-1].append(_reduce(item, known, minors))
        return _join("or", [_join("and", parts) for parts in alternatives])
    left, operator, right = node
    variable = str(left) if _is_variable(left) else str(right)
    if variable in known:
        literal = canonicalize_name(right.value) if variable == "extra" else None
        if literal is not None:
            return (known["extra"] == literal) == (str(operator) == "==")
        return Marker(_atom(node)).evaluate({**known})
    answers = {
        Marker(_atom(node)).evaluate({"python_version": minor, "python_full_version": f"{minor}.{patch}"})
        for minor in minors
        for patch in (_PATCHES if variable == "python_full_version" else (0,))
    }
    return answers.pop() if len(answers) == 1 else _atom(node)


def _join(word: str, parts: list[Any]) -> Any:
    """Combine parts, deciding what constants decide."""
    decides, vanishes = (False, True) if word == "and" else (True, False)
    if any(part is decides for part in parts):
        return decides
    left: list[Any] = []
    for part in parts:
        if part is not vanishes and part not in left:
            left.append(part)
    if not left:
        return vanishes
    return left[0] if len(left) == 1 else _Both(word, tuple(left))


def _is_variable(side: Any) -> bool:
    """Tell a variable from a literal; packaging names the two classes only in a private module."""
    return type(side).__name__ == "Variable"


def _atom(node: Any) -> str:
    left, operator, right = node
    sides = [str(side) if _is_variable(side) else f'"{side.value}"' for side in (left, right)]
    return f"{sides[0]} {operator} {sides[1]}"


def _text(left: Any) -> str:
    if left is True:
        return ""
    if isinstance(left, str):
        return left
    inner = [
        f"({_text(part)})" if isinstance(part, _Both) and left.word == "and" else _text(part) for part in left.parts
    ]
    return f" {left.word} ".join(inner)
