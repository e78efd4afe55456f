"""The GPU half in a pixi manifest: one feature and environment with CUDA, one without."""

from __future__ import annotations

from typing import Any

from provision.errors import UsageError
from provision.generate.fragment.edit import (
    Edit,
    Log,
    dump_toml,
    list_in,
    parse_toml,
    read_requirement,
    set_entry,
    table_in,
)
from provision.generate.fragment.half import GpuHalf, Pin, is_library

_CHANNEL = "conda-forge"
_CPU = "cpu"
_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}


def write_pixi(half: GpuHalf, text: str | None, path: str, *, name: str | None = None) -> Edit:
    """Write the GPU half into ``pixi.toml``, or below ``[tool.pixi]`` of a ``pyproject.toml``.

    Args:
        half: The GPU half.
        text: The file as it is; absent for a new one.
        path: Its name, which tells the two apart.
        name: Name of a new workspace; absent where only the fragment is wanted.

    Raises:
        UsageError: The file is not TOML, or pixi has no way to say it.
    """
    document, log = parse_toml(text or "", path), Log()
    if any(pin.is_flat for pin in half.pins):
        raise UsageError(
            f"the builds of {half.stack} lie on one page of links, which pixi does not take for one package",
            hints=("`--format uv` and `--format pip` can",),
        )
    root = table_in(document, "tool", "pixi") if path.endswith("pyproject.toml") else document
    # Older manifests call the workspace a project.
    workspace = table_in(root, "project" if "project" in root and root is document else "workspace")
    if name is not None:
        workspace["name"] = name
    platform = _write_platforms(workspace, half)
    dependencies = table_in(root, "dependencies")
    set_entry(dependencies, "python", f"{half.python}.*", "dependencies.python", log)
    _release(root, half, log)
    if platform is not None:
        cuda = table_in(root, "feature", half.build)
        if "platforms" not in cuda:
            cuda["platforms"] = [platform]
        _write_feature(root, half.build, half.pins, half, log)
    _write_feature(root, _CPU, half.cpu_pins, half, log)
    environments = table_in(root, "environments")
    for feature in dict.fromkeys((half.build, _CPU)):
        if feature not in environments:
            environments[feature] = [feature]
    return Edit(text=dump_toml(document, text), told=tuple(log.told))


def _write_platforms(workspace: Any, half: GpuHalf) -> str | None:
    """Declare the platform without and, where the stack has it, with CUDA; returns the name of the latter."""
    import tomlkit

    if "channels" not in workspace:
        workspace["channels"] = [_CHANNEL]
    platforms = list_in(workspace, "platforms")
    plain = _PLATFORMS[half.machine]
    name: str | None = f"{plain}-cuda{half.cuda_major}"
    if half.is_cpu:
        name = None
    elif not any(isinstance(item, dict) and item.get("name") == name for item in platforms):
        row = tomlkit.inline_table()
        # Within a CUDA major every driver of that major will do.
        row.update({"name": name, "platform": plain, "cuda": half.cuda_major})
        platforms.append(row)
    if not any(str(item) == plain for item in platforms if isinstance(item, str)):
        platforms.append(plain)
    return name


def _release(root: Any, half: GpuHalf, log: Log) -> None:
    """Take the frameworks out of what all environments share: the features say them, with and without CUDA."""
    shared = root.get("pypi-dependencies", {})
    for name in sorted(half.names & set(shared)):
        log.tell(f"pypi-dependencies.{name} is gone: the features {half.build} and {_CPU} say it")
        del shared[name]
    conda = root.get("dependencies", {})
    for name in sorted({"pytorch", "pytorch-gpu", "pytorch-cpu", *half.names} & set(conda)):
        log.tell(f"dependencies.{name} is gone: pip's wheel takes the place of conda's package")
        del conda[name]


def _write_feature(root: Any, feature: str, pins: tuple[Pin, ...], half: GpuHalf, log: Log) -> None:
    table = table_in(root, "feature", feature, "pypi-dependencies")
    wanted: dict[str, object] = {}
    for pin in pins:
        entry: dict[str, object] = {"version": f"=={pin.version}"}
        if pin.extras:
            entry["extras"] = list(pin.extras)
        if pin.index is not None:
            entry["index"] = pin.index
        wanted[pin.name] = entry if len(entry) > 1 else entry["version"]
    wanted |= {name: bound for name, bound in half.bounds if feature == half.build or not is_library(name)}
    if feature == half.build:
        for line in half.added:
            own = read_requirement(line)
            if own is not None:
                wanted.setdefault(own.name, str(own.specifier) or "*")
        wanted |= {name: f"=={version}" for name, version in half.held}
    for name, value in wanted.items():
        set_entry(table, name, value, f"feature.{feature}.pypi-dependencies.{name}", log)
