"""The versions that the lock of a project's own tool holds: wishes for the lock of the image, kept where they fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from provision.errors import UsageError
from provision.files import read_text
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.resolve.halves import is_open
from provision.resolve.request import FRAMEWORKS, Request, matches
from provision.resolve.requirements import normalise_name
from provision.resolve.stack import Refusal, Stack

LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pixi.lock", "conda-lock.yml", "pylock.toml")
"""Names of the locks that are read, the one that counts where there are several at the front."""
_BYTES_MAX = 32 * 1024 * 1024
_ELSEWHERE = frozenset(("git", "path", "directory", "editable", "virtual", "url", "file", "vcs", "archive"))
_CONDA_PLATFORMS = {"linux/amd64": "linux-64", "linux/arm64": "linux-aarch64"}
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+_-]*")
_CUDA_BUILD = re.compile(r"cu[0-9]+")
_ANY = ""


@record
class Pin:
    """A version that a lock holds.

    Attributes:
        name: Normalised.
        version: With its local part, where it has one.
        markers: It counts where one of these holds; where there are none, everywhere.
        file: The lock.
    """

    name: str
    version: str
    markers: tuple[str, ...]
    file: str

    def holds(self, python: str, platform: str) -> bool:
        """Tell whether it counts on a Python (``3.11``) of a platform."""
        from provision.audit.markers import holds

        return not self.markers or any(holds(marker, python, (platform,)) is True for marker in self.markers)


def read_pins(path: Path, platform: str, matrix: Matrix) -> tuple[Pin, ...]:
    """Read what a lock holds from package indexes.

    Args:
        path: It.
        platform: What conda's packages are wanted for.
        matrix: Knows conda's packages by their names on PyPI.

    Raises:
        UsageError: It cannot be read, or is no such lock.
    """
    text = read_text(path, "--project", bytes_max=_BYTES_MAX)
    rows = _rows(path, text, platform, matrix)
    found = {
        (normalise_name(name), version, markers)
        for name, version, markers in rows
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) and _VERSION.fullmatch(version)
    }
    return tuple(
        Pin(name=name, version=version, markers=markers, file=path.name) for name, version, markers in sorted(found)
    )


def held(pins: Iterable[Pin], stack: Stack) -> dict[str, Pin]:
    """Return the pins that count on the Python and platform of a stack, by name; where two do, neither is meant."""
    found: dict[str, dict[str, Pin]] = {}
    for pin in pins:
        if stack.python is not None and pin.holds(stack.python, stack.platform):
            found.setdefault(pin.name, {})[pin.version] = pin
    return {name: next(iter(versions.values())) for name, versions in found.items() if len(versions) == 1}


def with_pinned_frameworks(
    found: Stack, request: Request, matrix: Matrix, pins: Iterable[Pin], *, is_image: bool
) -> Stack:
    """Return the stack with the frameworks that a lock pins, where the request leaves them open and they can be had."""
    from provision.resolve.solve import solve

    pinned = held(pins, found)
    for name in FRAMEWORKS:
        pin, wish = pinned.get(name), getattr(request, name)
        if pin is None or name not in found.frameworks or (wish is not None and wish.startswith("==")):
            continue
        version, _, local = pin.version.partition("+")
        variant = f"+{local}" if _CUDA_BUILD.fullmatch(local) and not (request.cuda or request.is_cpu) else _ANY
        if not matches(wish, version):
            continue
        for text in dict.fromkeys((f"=={version}{variant}", f"=={version}")):
            if "+" not in text and found.frameworks[name] == version:
                break
            narrowed = replace(request, **{name: text.removeprefix("==")})
            other: Stack | Refusal = solve(narrowed, matrix, is_image=is_image)
            if isinstance(other, Stack):
                because = f"{pin.file} of the project has {pin.version}"
                reasons = tuple(
                    replace(reason, because=because) if reason.subject == name else reason for reason in other.reasons
                )
                request = narrowed
                found = replace(other, reasons=reasons)
                break
    return found


def moved(pins: Iterable[Pin], stack: Stack) -> Iterator[str]:
    """Yield what a stack has in another version than the lock of the project: frameworks, and all of the open half."""
    for name, pin in sorted(held(pins, stack).items()):
        version = stack.packages.get(name)
        if version is None or not (is_open(name) or name in FRAMEWORKS):
            continue
        if version.partition("+")[0] != pin.version.partition("+")[0]:
            yield f"{name} {pin.version} → {version}"


def _rows(path: Path, text: str, platform: str, matrix: Matrix) -> list[tuple[str, str, tuple[str, ...]]]:
    try:
        if path.suffix in (".yml", ".yaml") or path.name == "pixi.lock":
            return list(_conda_rows(_yaml(text), platform, matrix))
        if path.name == "Pipfile.lock":
            import json

            return list(_pipenv_rows(json.loads(text)))
        import tomllib

        return list(_toml_rows(tomllib.loads(text)))
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        raise UsageError(f"{path} cannot be read", because=(str(error).splitlines()[0],)) from error


def _yaml(text: str) -> Any:
    import yaml

    try:
        # Locks are long; the parser in C counts bytes where the other counts characters, and no place is asked for.
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _toml_rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the packages of uv.lock, poetry.lock, pdm.lock and pylock.toml."""
    for item in data.get("package", data.get("packages", ())):
        source = item.get("source") or {}
        # Of poetry's sources, which all have an address, the type says what they are.
        kinds = {str(source["type"])} if "type" in source else {*source, *item}
        if "version" not in item or (_ELSEWHERE & kinds and "registry" not in source):
            continue
        markers = item.get("resolution-markers", item.get("markers", item.get("marker")))
        if isinstance(markers, dict):  # of poetry, by group
            markers = markers.get("main")
        stated = [markers] if isinstance(markers, str) else markers or []
        yield str(item["name"]), str(item["version"]), tuple(map(str, stated))


def _pipenv_rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for name, item in data.get("default", {}).items():
        version = item.get("version", "")
        if version.startswith("=="):
            yield name, version.removeprefix("=="), tuple(filter(None, [item.get("markers", "")]))


def _conda_rows(data: Any, platform: str, matrix: Matrix) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the packages of pixi.lock and conda-lock.yml that are wanted on a platform, by their names on PyPI."""
    subdir = _CONDA_PLATFORMS[platform]
    settings = matrix.settings("audit_rules.toml")
    names = dict(settings["conda_names"].entries)
    names |= {normalise_name(name): name for name in settings["conda_same_names"].values}
    environments = data.get("environments")
    if environments is None:  # of conda-lock
        for item in data.get("package", ()):
            if item["platform"] == subdir:
                name = item["name"] if item.get("manager") == "pip" else names.get(item["name"], "")
                yield name, str(item["version"]), ()
        return
    wanted = environments.get("default", {}).get("packages", {}).get(subdir, ())
    stated = {item.get("pypi"): item for item in data.get("packages", ()) if "pypi" in item}
    for item in wanted:
        if "conda" in item:
            parts = unquote(urlsplit(item["conda"]).path).rpartition("/")[2].rsplit("-", 2)
            yield names.get(parts[0], ""), parts[1] if len(parts) > 1 else "", ()
        elif (row := stated.get(item.get("pypi"))) is not None and "version" in row:
            yield str(row["name"]), str(row["version"]), ()
