"""The GPU half in a ``pyproject.toml`` for uv: extras that exclude each other, explicit indexes, constraints."""

from __future__ import annotations

import re
from typing import Any

from provision.errors import UsageError
from provision.generate.fragment.edit import (
    Edit,
    Log,
    can_hold,
    dump_toml,
    list_in,
    merge_requirements,
    narrow_pythons,
    parse_toml,
    read_requirement,
    rewrite_requirement,
    set_entry,
    table_in,
)
from provision.generate.fragment.half import GpuHalf, Pin
from provision.resolve.request import FRAMEWORKS

_CPU = "cpu"
_BUILD = re.compile(r"cu(da)?[0-9]+")
_LINUX = "sys_platform == 'linux'"


def write_uv(half: GpuHalf, text: str | None, path: str, *, name: str | None = None) -> Edit:
    """Write the GPU half into a ``pyproject.toml``.

    Args:
        half: The GPU half.
        text: The file as it is; absent for a new one.
        path: Its name, for messages.
        name: Name of a new project; absent where only the fragment is wanted.

    Raises:
        UsageError: The file is not TOML, or is one that uv would not take this from.
    """
    document, log = parse_toml(text or "", path), Log()
    if text is not None:
        check_project(document, path, "uv")
    project = table_in(document, "project")
    if name is not None:
        project["name"], project["version"] = name, "0"
    set_entry(
        project,
        "requires-python",
        narrow_pythons(_text(project.get("requires-python")), half),
        "project.requires-python",
        log,
    )
    dynamic = project.get("dynamic", ())
    if "optional-dependencies" in dynamic:
        raise UsageError(
            f"{path} leaves its extras to the build backend",
            because=("`optional-dependencies` stands in project.dynamic, and uv chooses the build by extras",),
            hints=("write the extras into [project.optional-dependencies], or take `--format pip`",),
        )
    hold_requirements(document, half, log)
    if (half.is_cpu or all(pin.index is None for pin in half.pins)) and "dependencies" not in dynamic:
        # The package index serves this build, so whoever takes no extra gets it too.
        array = list_in(project, "dependencies")
        have = {own.name.lower() for entry in array if (own := read_requirement(str(entry))) is not None}
        names = {pin.name: pin for pin in half.cpu_pins}
        # A project that names one of them has said which of what is released together it uses.
        wanted = FRAMEWORKS if have & names.keys() else names
        missing = [pin.line for pin in names.values() if pin.name not in have and pin.name in wanted]
        merge_requirements(array, missing, half, "project.dependencies", log)
    elif "dependencies" not in dynamic and "dependencies" not in project:
        list_in(project, "dependencies")
    is_apart = _is_named_elsewhere(document, half)
    stale: set[str] = set()
    if not half.is_cpu:
        stale = _write_extras(project, half, log, is_apart=is_apart)
    tool = table_in(document, "tool", "uv")
    _write_settings(tool, half, stale, log, is_apart=is_apart)
    indexes = _write_indexes(tool, half, log)
    _write_sources(tool, half, indexes, log)
    _drop_indexes(tool, indexes, log)
    return Edit(text=dump_toml(document, text), told=tuple(log.told))


def _write_extras(project: Any, half: GpuHalf, log: Log, *, is_apart: bool) -> set[str]:
    """Say the frameworks once without and once with CUDA; returns the extras of earlier stacks, which are gone."""
    extras = table_in(project, "optional-dependencies")
    stale = _drop_stale(extras, half, log)
    for extra, pins, more in ((_CPU, half.cpu_pins, ()), (half.build, half.pins, half.added)):
        lines = [*(_pin_line(pin, is_apart=is_apart) for pin in pins), *more]
        own = {found.name.lower() for line in extras.get(extra, ()) if (found := read_requirement(str(line)))}
        if own and own.isdisjoint(pin.name for pin in pins):
            other = half.build if extra == _CPU else _CPU
            log.tell(f"extra {extra}, which the project has, takes {', '.join(lines)} too and excludes extra {other}")
        merge_requirements(list_in(extras, extra), lines, half, f"extra {extra}", log)
    return stale


def check_project(document: Any, path: str, tool: str) -> None:
    """Refuse a file that has no ``[project]`` to write into.

    Raises:
        UsageError: It is Poetry's own older form, or leaves everything to a ``setup.py``.
    """
    if "project" in document or not len(document):
        return
    is_poetry = "poetry" in document.get("tool", {})
    raise UsageError(
        f"{path} has no [project] table, which {tool} needs",
        because=("it is written for Poetry" if is_poetry else "its name and dependencies are said elsewhere",),
        hints=("`--format poetry` writes for Poetry" if is_poetry else "`--format pip` writes a requirements file",),
    )


def hold_requirements(document: Any, half: GpuHalf, log: Log, *, style: str = "{0}=={1}") -> None:
    """Rewrite each requirement of a framework in a project that the stack's version does not fit."""
    for where, lines in _lists(document):
        if where == f"extra {half.build}":
            continue
        for place, line in enumerate(lines):
            changed = rewrite_requirement(str(line), half, style=style) if isinstance(line, str) else None
            if changed is not None and changed != str(line):
                log.tell(f'{where}: "{line}" became "{changed}"')
                lines[place] = changed


def _lists(document: Any) -> list[tuple[str, Any]]:
    """Return each list of requirements in a project with what messages call it."""
    project = document.get("project", {})
    extras, groups = project.get("optional-dependencies", {}), document.get("dependency-groups", {})
    found = [("project.dependencies", list_in(project, "dependencies"))] if "dependencies" in project else []
    found += [(f"extra {name}", list_in(extras, name)) for name in extras]
    return found + [(f"group {name}", list_in(groups, name)) for name in groups]


def _is_named_elsewhere(document: Any, half: GpuHalf) -> bool:
    """Tell whether a project asks for a framework by lines of their own for other platforms."""
    lines = [read_requirement(str(line)) for _, entries in _lists(document) for line in entries]
    return any(own.name in half.names and not can_hold(own.marker, half) for own in lines if own is not None)


def _pin_line(pin: Pin, *, is_apart: bool) -> str:
    return f"{pin.line} ; {_LINUX}" if is_apart else pin.line


def _text(value: object) -> str | None:
    return str(value) if value is not None else None


def _drop_stale(extras: Any, half: GpuHalf, log: Log) -> set[str]:
    """Remove extras that an earlier stack left: named as builds are, and holding nothing else than frameworks."""
    ours = half.names | {"setuptools", "packaging"} | {name for name, _ in half.held}
    stale = set()
    for name in list(extras):
        if name == half.build or not _BUILD.fullmatch(name):
            continue
        found = [read_requirement(str(line)) for line in extras[name]]
        if all(own is not None and own.name.lower() in ours for own in found):
            stale.add(str(name))
            del extras[name]
            log.tell(f"extra {name} is gone: {half.build} takes its place")
    return stale


def _write_settings(tool: Any, half: GpuHalf, stale: set[str], log: Log, *, is_apart: bool) -> None:
    if not half.is_cpu:
        _write_conflict(tool, half, stale)
    if "environments" not in tool:
        required = list_in(tool, "required-environments")
        place = f"{_LINUX} and platform_machine == '{half.machine}'"
        if place not in required:
            required.append(place)
    lines = [_pin_line(pin, is_apart=is_apart) for pin in half.cpu_pins]
    lines += [f"{name}{bound}" for name, bound in half.bounds]
    lines += [f"{name}=={version}" for name, version in half.held]
    array = list_in(tool, "constraint-dependencies")
    merge_requirements(array, lines, half, "tool.uv.constraint-dependencies", log)
    if len(array) > 1 and "\n" not in array.as_string():
        array.multiline(True)


def _write_conflict(tool: Any, half: GpuHalf, stale: set[str]) -> None:
    conflicts = list_in(tool, "conflicts")
    known = next((group for group in conflicts if any(item.get("extra") == _CPU for item in group)), None)
    wanted = [{"extra": _CPU}, {"extra": half.build}]
    if known is None:
        conflicts.append(_pairs(wanted))
    else:
        kept = [dict(item) for item in known if item.get("extra") not in stale]
        kept += [item for item in wanted if item not in kept]
        if kept != [dict(item) for item in known]:
            conflicts[list(conflicts).index(known)] = _pairs(kept)


def _pairs(items: list[dict[str, str]]) -> Any:
    import tomlkit

    array = tomlkit.array()
    for item in items:
        pair = tomlkit.inline_table()
        pair.update(item)
        array.append(pair)
    return array


def _indexes_of(half: GpuHalf) -> dict[str, tuple[str, bool]]:
    """Return address → name and whether it is one flat page."""
    found: dict[str, tuple[str, bool]] = {}
    for pin in (*half.cpu_pins, *half.pins):
        if pin.index is not None:
            name = "jax-cuda" if pin.is_flat else f"pytorch-{pin.index.rstrip('/').rpartition('/')[2]}"
            found[pin.index] = (name, pin.is_flat)
    return found


def _write_indexes(tool: Any, half: GpuHalf, log: Log) -> dict[str, str]:
    """Declare the indexes; returns address → name."""
    import tomlkit

    names: dict[str, str] = {}
    for url, (name, is_flat) in _indexes_of(half).items():
        rows = tool.get("index", ())
        row = next((row for row in rows if str(row.get("url", "")).rstrip("/") == url.rstrip("/")), None)
        row = row if row is not None else next((row for row in rows if row.get("name") == name), None)
        if row is None:
            row = tomlkit.table()
            row.update({"name": name, "url": url, **({"format": "flat"} if is_flat else {}), "explicit": True})
            if "index" not in tool:
                tool["index"] = tomlkit.aot()
            tool["index"].append(row)
        where = f"tool.uv.index {row.get('name', name)}"
        if "name" not in row:
            row["name"] = name
        set_entry(row, "url", url if str(row["url"]).rstrip("/") != url.rstrip("/") else str(row["url"]), where, log)
        set_entry(row, "explicit", True, where, log)
        names[url] = str(row["name"])
    return names


def _write_sources(tool: Any, half: GpuHalf, indexes: dict[str, str], log: Log) -> None:
    wanted: dict[str, list[dict[str, str]]] = {}
    for extra, pins in ((_CPU, half.cpu_pins), (half.build, half.pins))[half.is_cpu :]:
        for pin in pins:
            if pin.index is not None:
                place = {"index": indexes[pin.index]} if half.is_cpu else {"index": indexes[pin.index], "extra": extra}
                wanted.setdefault(pin.name, []).append(place)
    if not wanted and "sources" not in tool:
        return
    sources = table_in(tool, "sources")
    for name, places in wanted.items():
        set_entry(sources, name, places, f"tool.uv.sources.{name}", log)
    for name in half.names - set(wanted):
        if name in sources:
            log.tell(f"tool.uv.sources.{name} is gone: the package index serves this build")
            del sources[name]


def _drop_indexes(tool: Any, indexes: dict[str, str], log: Log) -> None:
    """Remove the index of an earlier stack that nothing is taken from any more."""
    used = set(indexes.values())
    for value in tool.get("sources", {}).values():
        used |= {str(item["index"]) for item in (value if isinstance(value, list) else [value]) if "index" in item}
    rows = tool.get("index", ())
    for place in range(len(rows) - 1, -1, -1):
        name = str(rows[place].get("name", ""))
        if re.fullmatch(r"pytorch-cu[0-9]+", name) and name not in used:
            log.tell(f"tool.uv.index {name} is gone: nothing is taken from it")
            del rows[place]
