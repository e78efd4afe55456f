"""Manifests of pipenv and pixi: ``Pipfile`` and ``pixi.toml``."""

from __future__ import annotations

from typing import Any

from provision.audit.model import Index, Requirement, Source
from provision.audit.places import Placed, read_toml
from provision.audit.project import Project, table_of, table_requirement
from provision.audit.requirement import parse_conda
from provision.audit.shell import Text
from provision.records import record, replace


@record
class PixiProject:
    """What a workspace of pixi asks for.

    Attributes:
        packages: Of conda.
        pypi: From an index of Python packages.
        channels: Of conda, in order.
        cuda: The CUDA that its machines have, as it says.
        left: What was not understood, as written.
    """

    packages: tuple[Requirement, ...] = ()
    pypi: tuple[Requirement, ...] = ()
    channels: tuple[Index, ...] = ()
    cuda: str | None = None
    left: tuple[str, ...] = ()


def read_pipfile(source: Source) -> Project:
    """Return what a ``Pipfile`` asks for, its packages for development left out.

    Raises:
        UsageError: It is not TOML.
    """
    placed = read_toml(source)
    found, left = _requirements(placed, ("packages",))
    rows = placed.data.get("source", [])
    indexes = [
        Index(
            kind="extra",
            url=str(row.get("url", "")) or None,
            origin="file",
            name=str(row.get("name", "")),
            span=placed.span("source", number, "url"),
        )
        for number, row in enumerate(rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
    ]
    asked = table_of(placed.data, "requires")
    python = asked.get("python_full_version") or asked.get("python_version")
    return Project(
        name="packages",
        requirements=tuple(found),
        indexes=tuple(indexes),
        python=python if isinstance(python, str) else None,
        left=tuple(left),
    )


def read_pixi(source: Source, prefix: tuple[str, ...] = ()) -> PixiProject:
    """Return what the default environment of pixi asks for on Linux.

    Args:
        source: ``pixi.toml``, or a ``pyproject.toml`` with the tables of pixi in it.
        prefix: Keys of the table that holds them.

    Raises:
        UsageError: It is not TOML.
    """
    placed = read_toml(source)
    packages: list[Requirement] = []
    pypi: list[Requirement] = []
    left: list[str] = []
    for place in (prefix, (*prefix, "target", "linux"), (*prefix, "target", "linux-64")):
        for name, value in _at(placed.data, (*place, "dependencies")).items():
            version = value.get("version", "*") if isinstance(value, dict) else value
            raw = f"{name} {'' if version == '*' else version}"
            made = parse_conda(Text(raw, [-1] * len(raw)), source.file)
            if made is None:
                left.append(f"{name} = {value}")
                continue
            span = placed.span(*place, "dependencies", name)
            build = str(value.get("build", "")) if isinstance(value, dict) else ""
            packages.append(replace(made, build=build or made.build, span=span, name_span=span, specifier_span=span))
        found, more = _requirements(placed, (*place, "pypi-dependencies"))
        pypi += found
        left += more
    cuda = _at(placed.data, (*prefix, "system-requirements")).get("cuda")
    channels = [
        Index(kind="channel", url=str(name), origin="file", span=placed.span(*prefix, table, "channels", number))
        for table in ("workspace", "project")
        for number, name in enumerate(_names(_at(placed.data, (*prefix, table)).get("channels")))
    ]
    return PixiProject(
        channels=tuple(channels),
        packages=tuple(packages),
        pypi=tuple(pypi),
        cuda=str(cuda) if isinstance(cuda, (str, int, float)) else None,
        left=tuple(left),
    )


def _names(channels: Any) -> list[Any]:
    """Return the channels of a workspace; one with a priority is a table."""
    listed = channels if isinstance(channels, list) else []
    return [item.get("channel", "") if isinstance(item, dict) else item for item in listed]


def _requirements(placed: Placed, path: tuple[str, ...]) -> tuple[list[Requirement], list[str]]:
    found, left = [], []
    for name, value in _at(placed.data, path).items():
        made = table_requirement(placed, path, name, value)
        if made is None:
            left.append(f"{name} = {value}")
        else:
            found.append(made)
    return found, left


def _at(data: Any, path: tuple[str, ...]) -> dict[str, Any]:
    for part in path:
        data = table_of(data, part)
    return data if isinstance(data, dict) else {}
