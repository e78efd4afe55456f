"""Environments of conda and manifests of pixi, by the names that their packages have on PyPI."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from provision.errors import UsageError, first_of
from provision.project.listing import CONDA_WAYS_OUT, take_listing, variables
from provision.project.pins import LOCKS
from provision.resolve.requirements import normalise_name

if TYPE_CHECKING:
    from provision.audit.conda import CondaFile
    from provision.audit.model import Requirement, Source
    from provision.project.folder import Folder

_ENVIRONMENTS = ("environment*.y*ml", "conda*.y*ml", "env*/*.y*ml", "conda*/*.y*ml")
_FOR_LESS = frozenset(("cpu", "mac", "macos", "osx", "win", "windows", "doc", "docs", "test", "tests", "dev"))
"""Words in the name of an environment that is not the one for a GPU."""
_FOR_A_GPU = frozenset(("gpu", "cuda"))


def is_environment(source: Source) -> bool:
    """Tell whether a file lists packages as an environment of conda does."""
    return re.search(r"^dependencies:\s*(?:\[|$)", source.text, re.MULTILINE) is not None


def take_pixi_file(folder: Folder) -> bool:
    """Take what a ``pixi.toml`` asks for, and tell whether that is anything."""
    path = folder.file("pixi.toml")
    return path is not None and take_pixi(folder, path)


def take_pixi(folder: Folder, path: Path, prefix: tuple[str, ...] = ()) -> bool:
    """Take what a manifest of pixi, or the tables under a prefix, asks for, and tell whether that is anything."""
    from provision.audit.manifests import read_pixi

    before = len(folder.found.lines)
    source = folder.files.take(path)
    pixi = read_pixi(source, prefix)
    folder.refuse_left(pixi.left, path)
    _take_packages(folder, pixi.packages)
    for requirement in pixi.pypi:
        if not folder.take_member(requirement):
            folder.add(requirement)
    if prefix:
        return len(folder.found.lines) > before
    folder.refuse_choices(path)
    if len(folder.found.lines) > before:
        folder.tell(path, len(folder.found.lines) - before)
    return len(folder.found.lines) > before


def take_conda(folder: Folder) -> bool:
    """Take the environment that counts among those of a project, and tell whether there is one."""
    paths = _environments(folder)
    if not paths:
        return False
    if paths[1:]:
        others = ", ".join(str(path.relative_to(folder.folder)) for path in paths[1:])
        folder.found.warnings.append(
            f"of several environments {paths[0]} is read, and not {others}; `-r FILE` reads another one"
        )
    try:
        environment = _read_conda(folder, paths[0])
    except UsageError as error:
        folder.unlike.append(error)
        return False
    if environment.is_export:
        folder.exports.append((paths[0], environment))
        return False
    return take_environment(folder, paths[0], environment)


def _environments(folder: Folder) -> list[Path]:
    """Return the environments of conda that the project has, the one for a GPU first."""
    choices = folder.found.matrix.settings("audit_rules.toml")["conda_cuda_choices"].values
    ranked: dict[Path, tuple[bool, bool, bool, int, str]] = {}
    for pattern in _ENVIRONMENTS:
        for path in folder.all_of(pattern):
            place = path.relative_to(folder.folder)
            source = folder.files.take(path)
            if path.name in LOCKS or (place.parts[1:] and not is_environment(source)):
                continue
            words = set(re.split(r"[^a-z0-9]+", path.stem.lower()))
            has_cuda = bool(words & _FOR_A_GPU) or any(choice in source.text for choice in choices)
            is_usual = place.stem == "environment"
            ranked[path] = (bool(words & _FOR_LESS), not has_cuda, not is_usual, len(place.parts), str(place))
    return sorted(ranked, key=lambda path: ranked[path])


def _read_conda(folder: Folder, path: Path) -> CondaFile:
    from provision.audit.conda import read_conda_file

    try:
        return read_conda_file(folder.files.take(path), folder.files, variables=variables())
    except UsageError as error:
        raise UsageError(error.message, because=error.because, hints=error.hints or CONDA_WAYS_OUT) from error


def read_environment(folder: Folder, path: Path) -> None:
    """Read an environment of conda that was named itself."""
    take_environment(folder, path, _read_conda(folder, path))


def take_exported(folder: Folder) -> bool:
    """Take an environment that says what one machine had."""
    return any(take_environment(folder, *export) for export in folder.exports)


def take_environment(folder: Folder, path: Path, environment: CondaFile) -> bool:
    """Take what an environment asks for, and tell whether that is anything."""
    before = len(folder.found.lines)
    folder.refuse_left((item.text for item in environment.left), path)
    _take_packages(folder, environment.packages)
    take_listing(folder.found, environment.pip, folder.files, root=folder.folder)
    folder.refuse_choices(path)
    if len(folder.found.lines) > before:
        folder.tell(path, len(folder.found.lines) - before)
    return len(folder.found.lines) > before


def _take_packages(folder: Folder, packages: Iterable[Requirement]) -> None:
    """Take packages of conda by their names on PyPI."""
    packages = list(packages)
    settings = folder.found.matrix.settings("audit_rules.toml")
    names = dict(settings["conda_names"].entries)
    names |= {normalise_name(name): name for name in settings["conda_same_names"].values}
    choices = settings["conda_cuda_choices"].values
    has_torch = any(names.get(item.name) == "torch" for item in packages)
    is_cpu = any(item.name in ("cpuonly", "pytorch-cpu") for item in packages)
    unknown: list[str] = []
    for item in packages:
        where = folder.found.where(item.span, folder.files)
        said = f"`{item.text}` in {where}"
        name = names.get(item.name) or names.get(normalise_name(item.name))
        if item.name == "python":
            if item.specifier:
                folder.found.pythons.append((item.specifier, said))
        elif item.name in choices:
            _take_cuda(folder, item, said, has_torch=has_torch)
        elif name is None:
            if item.name != "cpuonly":
                unknown.append(item.name)
        elif name not in ("pip", "setuptools", "wheel"):
            folder.found.add(f"{name}{item.specifier}", where)
            if name == "torch" and (cuda := re.search(r"cuda_?([0-9]{2})\.?([0-9])", item.build)):
                folder.found.cuda.append((f"{cuda[1]}.{cuda[2]}", said))
            if name == "torch" and (is_cpu or item.build.startswith("cpu")):
                folder.found.warnings.append(f"{said} is a build without CUDA there; `--cpu` chooses one here")
    if unknown:
        shown = first_of(unknown, 20)
        folder.found.warnings.append(
            f"{folder.taken or folder.folder}: packages of conda that are not known on PyPI are left out: {shown}"
        )


def _take_cuda(folder: Folder, item: Requirement, said: str, *, has_torch: bool) -> None:
    version = re.search(r"==([0-9]+\.[0-9]+)", item.specifier)
    if has_torch and version is not None:
        folder.found.cuda.append((version[1], said))
    elif item.specifier:
        folder.found.warnings.append(f"{said} is left out: what it would serve does not come from conda here")
