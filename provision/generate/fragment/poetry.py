"""The GPU half in a ``pyproject.toml`` for Poetry: without CUDA unless the extra is asked for, each from its source."""

from __future__ import annotations

import re
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from provision.errors import UsageError
from provision.generate.fragment.edit import (
    Edit,
    Log,
    dump_toml,
    list_in,
    merge_requirements,
    narrow_pythons,
    parse_toml,
    read_requirement,
    set_entry,
    table_in,
)
from provision.generate.fragment.half import GpuHalf, Pin, is_library

_LINUX = "sys_platform == 'linux'"


def write_poetry(half: GpuHalf, text: str | None, path: str, *, name: str | None = None) -> Edit:
    """Write the GPU half into a ``pyproject.toml``.

    Args:
        half: The GPU half.
        text: The file as it is; absent for a new one.
        path: Its name, for messages.
        name: Name of a new project; absent where only the fragment is wanted.

    Raises:
        UsageError: The file is not TOML, or Poetry has no way to say it.
    """
    document, log = parse_toml(text or "", path), Log()
    if any(pin.is_flat for pin in half.pins):
        raise UsageError(
            f"the builds of {half.stack} lie on one page of links, which Poetry cannot name as an explicit source",
            hints=("`--format uv` and `--format pip` can",),
        )
    tool = document.get("tool", {})
    if "project" not in document and "dependencies" in tool.get("poetry", {}):
        _write_older(document, half, log)
    elif "project" in document or text is None or not len(document):
        _write_project(document, half, name, log)
    else:
        raise UsageError(
            f"{path} has neither a [project] nor a [tool.poetry.dependencies] table",
            because=("its name and dependencies are said elsewhere",),
            hints=("`--format pip` writes a requirements file",),
        )
    _write_poetry_sources(document, half, log)
    return Edit(text=dump_toml(document, text), told=tuple(log.told))


def _source(pin: Pin) -> str:
    return "pypi" if pin.index is None else f"pytorch-{pin.index.rstrip('/').rpartition('/')[2]}"


def _write_project(document: Any, half: GpuHalf, name: str | None, log: Log) -> None:
    project = table_in(document, "project")
    if name is not None:
        project["name"], project["version"] = name, "0"
        table_in(document, "tool", "poetry")["package-mode"] = False
    pythons = project.get("requires-python")
    narrowed = narrow_pythons(None if pythons is None else str(pythons), half)
    set_entry(project, "requires-python", narrowed, "project.requires-python", log)
    base = list_in(project, "dependencies")
    cuda = {pin.name: pin for pin in half.pins}
    apart = {pin.name for pin in half.cpu_pins if pin.index is not None and not half.is_cpu}
    lines = [f'{pin.line}; extra != "{half.build}"' if pin.name in apart else pin.line for pin in half.cpu_pins]
    _merge_base(base, lines, log)
    _bound_base(base, half, log)
    if half.is_cpu:
        sourced = [pin for pin in half.pins if pin.index is not None]
        table = table_in(document, "tool", "poetry", "dependencies") if sourced else {}
        for pin in sourced:
            set_entry(table, pin.name, {"source": _source(pin)}, f"tool.poetry.dependencies.{pin.name}", log)
        return
    extras = table_in(project, "optional-dependencies")
    libraries = [f"{library}=={version}; {_LINUX}" for library, version in half.held]
    bounds = [f"{library}{bound}; {_LINUX}" for library, bound in half.bounds if is_library(library)]
    wanted = [*(pin.line for pin in half.pins), *half.added, *libraries, *bounds]
    merge_requirements(list_in(extras, half.build), wanted, half, f"extra {half.build}", log)
    if apart:
        table = table_in(document, "tool", "poetry", "dependencies")
        for pin in half.cpu_pins:
            places = [
                {"markers": f"extra != '{half.build}'", "source": _source(pin)},
                {"markers": f"extra == '{half.build}'", "source": _source(cuda[pin.name])},
            ]
            set_entry(table, pin.name, places, f"tool.poetry.dependencies.{pin.name}", log)


def _merge_base(base: Any, lines: list[str], log: Log) -> None:
    """Put the frameworks into the dependencies; a marker of ours is compared as text, since it speaks of extras."""
    for line in lines:
        wanted = read_requirement(line)
        own = [
            (place, found)
            for place, entry in enumerate(base)
            if (found := read_requirement(str(entry))) is not None
            and wanted is not None
            and canonicalize_name(found.name) == canonicalize_name(wanted.name)
        ]
        if own and any(str(found) == str(wanted) for _, found in own):
            continue
        for place, found in reversed(own):
            if place == own[0][0]:
                log.tell(f'project.dependencies: "{found}" became "{line}"')
                base[place] = line
            else:
                log.tell(f'project.dependencies: "{found}" is gone, since "{line}" stands there')
                del base[place]
        if not own:
            base.append(line)


def _bound_base(base: Any, half: GpuHalf, log: Log) -> None:
    for name, bound in half.bounds:
        # A dependency is installed: a library of CUDA belongs to the extra alone.
        if name in half.names or is_library(name):
            continue
        place, own = next(
            (
                (place, found)
                for place, entry in enumerate(base)
                if (found := read_requirement(str(entry))) is not None and canonicalize_name(found.name) == name
            ),
            (None, None),
        )
        if place is None or own is None:
            base.append(f"{name}{bound}")
        elif own.url is None and not set(SpecifierSet(bound)) <= set(own.specifier):
            before = str(own)
            own.specifier &= SpecifierSet(bound)
            log.tell(f'project.dependencies: "{before}" became "{own}"')
            base[place] = str(own)


def _write_older(document: Any, half: GpuHalf, log: Log) -> None:
    """Write into a project of Poetry's own older form: its extras cannot choose between two sources, so CUDA alone."""
    table = document["tool"]["poetry"]["dependencies"]
    where = "tool.poetry.dependencies"
    given = _specifier_of(str(table["python"]) if "python" in table else None)
    narrowed = narrow_pythons(given, half)
    if narrowed != given:
        set_entry(table, "python", narrowed, f"{where}.python", log)
    for pin in half.pins:
        entry: dict[str, object] = {"version": pin.version}
        if pin.extras:
            entry["extras"] = list(pin.extras)
        if pin.index is not None:
            entry["source"] = _source(pin)
        value = entry if len(entry) > 1 else pin.version
        set_entry(table, _key(table, pin.name), value, f"{where}.{pin.name}", log)
    for name, version in half.held:
        entry = {"version": version, "markers": _LINUX}
        set_entry(table, _key(table, name), entry, f"{where}.{name}", log)
    bounds = dict(half.bounds)
    for own in filter(None, map(read_requirement, half.added)):
        bounds[own.name] = ",".join(filter(None, (str(own.specifier), bounds.get(own.name)))) or "*"
    for name, bound in bounds.items():
        key = _key(table, name)
        present = table.get(key)
        if present is None:
            table[key] = bound
        elif isinstance(present, str) and name not in half.names and not _has(str(present), bound):
            joined = bound if str(present) == "*" else f"{present},{bound}"
            set_entry(table, key, joined, f"{where}.{key}", log)


def _has(present: str, bound: str) -> bool:
    return bound == "*" or set(bound.split(",")) <= set(present.replace(" ", "").split(","))


def _key(table: Any, name: str) -> str:
    """Return a package's key as the table spells it."""
    return next((str(key) for key in table if canonicalize_name(str(key)) == name), name)


def _specifier_of(given: str | None) -> str | None:
    """Return Poetry's own way to name Pythons as a plain specifier."""
    if given is None or given == "*":
        return None
    found = re.fullmatch(r"([~^])\s*([0-9]+)(?:\.([0-9]+))?(\.[0-9]+)?", given)
    if found is not None:
        sign, major, minor, patch = found.groups()
        low = f">={major}.{minor or 0}{patch or ''}"
        return f"{low},<{int(major) + 1}" if sign == "^" or minor is None else f"{low},<{major}.{int(minor) + 1}"
    try:
        return str(given) if SpecifierSet(given) else None
    except InvalidSpecifier:
        return None


def _write_poetry_sources(document: Any, half: GpuHalf, log: Log) -> None:
    import tomlkit

    is_older = "project" not in document
    pins = half.pins if is_older else (*half.cpu_pins, *half.pins)
    wanted = {pin.index: _source(pin) for pin in pins if pin.index is not None}
    if not wanted:
        return
    poetry = table_in(document, "tool", "poetry")
    if "source" not in poetry:
        poetry["source"] = tomlkit.aot()
    for url, name in wanted.items():
        row = next((row for row in poetry["source"] if row.get("name") == name), None)
        if row is None:
            row = tomlkit.table()
            row.update({"name": name, "url": url, "priority": "explicit"})
            poetry["source"].append(row)
        set_entry(row, "url", url, f"tool.poetry.source {name}", log)
        set_entry(row, "priority", "explicit", f"tool.poetry.source {name}", log)
