"""Which wheels the facts keep, and which of them a Python on a machine would take."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from provision.index.page import IndexFile
from provision.refresh.client import number_of
from provision.versions import Spec

if TYPE_CHECKING:
    from packaging.tags import Tag

MACHINES = ("x86_64", "aarch64")
_GLIBC_MINORS = range(60, 4, -1)
_LEGACY_POLICIES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_LATE_PATCH = 9
"""A patch release that bounds such as ``!=3.14.1`` do not mean."""


@lru_cache(maxsize=None)
def tags_of(python: str, machine: str) -> dict[Tag, int]:
    """Return the tags of a Linux CPython with their rank, best first.

    Args:
        python: ``3.12``, or ``3.13t`` for the free-threaded one.
        machine: ``x86_64`` or ``aarch64``.
    """
    from packaging.tags import compatible_tags, cpython_tags

    minor = int(python.rstrip("t").split(".")[1])
    platforms = []
    for glibc in _GLIBC_MINORS:
        platforms.append(f"manylinux_2_{glibc}_{machine}")
        if glibc in _LEGACY_POLICIES:
            platforms.append(f"{_LEGACY_POLICIES[glibc]}_{machine}")
    platforms.append(f"linux_{machine}")
    abi = f"cp3{minor}{'t' if python.endswith('t') else 'm' if minor < 8 else ''}"
    ordered = [
        *cpython_tags((3, minor), abis=[abi], platforms=platforms),
        *compatible_tags((3, minor), interpreter=f"cp3{minor}", platforms=platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def is_kept(file: str) -> bool:
    """Tell whether a file is a wheel for some Linux CPython on a machine that is known here."""
    try:
        tags = parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return False
    return any(tag.interpreter.startswith(("py3", "cp3")) and _is_platform(tag.platform) for tag in tags)


def _is_platform(platform: str) -> bool:
    return platform == "any" or (platform.startswith(("manylinux", "linux")) and platform.endswith(MACHINES))


def version_of(file: str) -> str | None:
    """Return the version of a wheel or a source distribution, the PEP 440 way; ``None`` for other files."""
    try:
        parsed = parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return str(parsed)


def machines_of(file: str) -> tuple[str, ...]:
    """Return the machines a wheel runs on; all of them for one without compiled code."""
    if file.endswith(("-any.whl", ".tar.gz", ".zip")):
        return MACHINES
    return tuple(machine for machine in MACHINES if machine in file)


def pythons_of(files: Iterable[str], machine: str) -> tuple[str, ...]:
    """Return the Pythons that wheels name in their tags (``3.13``, ``3.13t``), oldest first.

    A wheel for any Python 3, or for a stable interface, names none but the oldest it serves.
    """
    found = set()
    for file in files:
        for tag in parse_wheel_filename(file)[3]:
            digits = tag.interpreter.removeprefix("cp3")
            minor = number_of(digits)
            if tag.interpreter.startswith("cp3") and minor is not None and tag.platform.endswith(machine):
                found.add((minor, tag.abi.endswith("t")))
    return tuple(f"3.{minor}{'t' if is_free else ''}" for minor, is_free in sorted(found))


def platform_tag(file: str) -> str:
    """Return the platform part of a wheel's name."""
    return file.removesuffix(".whl").rsplit("-", 1)[-1]


def best_file(files: Iterable[IndexFile], python: str, machine: str) -> IndexFile | None:
    """Return the file an installer takes: best tag, then highest build number; sources where nothing else is."""
    rank = tags_of(python, machine)
    rows = list(files)
    if rows and not rows[0].file.endswith(".whl"):
        return rows[0]
    ranked = [
        (min((rank[tag] for tag in parse_wheel_filename(row.file)[3] if tag in rank), default=None), row)
        for row in rows
    ]
    fitting = [(place, row) for place, row in ranked if place is not None]
    if not fitting:
        return None
    best = min(place for place, _ in fitting)
    return max(
        (row for place, row in fitting if place == best), key=lambda row: (parse_wheel_filename(row.file)[2], row.file)
    )


def is_fitting(files: Iterable[IndexFile], python: str, machine: str) -> bool:
    """Tell whether some file can be installed by a late patch release of a Python."""
    row = best_file(files, python, machine)
    if row is None:
        return False
    try:
        return f"{python.rstrip('t')}.{_LATE_PATCH}" in Spec(row.requires_python or "")
    except ValueError:
        return False
