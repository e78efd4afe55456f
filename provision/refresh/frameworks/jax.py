"""Rows of JAX, one a CUDA plugin."""

from __future__ import annotations

import re

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from provision.refresh.book import Row
from provision.refresh.frameworks.row import bound_text, day_of, origin, requires_python_text, specifiers, targets_of
from provision.refresh.tags import is_fitting, platform_tag, pythons_of
from provision.refresh.wheels import Shelf, wheel_file

FAMILY = ("jax", "jaxlib")
"""Distributions the rows are made of, beside the plugins that the facts have wheel files of."""
FILE = "frameworks/jax.toml"
MEASURED = (
    *("released", "requires_python", "extra", "jaxlib", "plugin", "pythons", "platform_tag", "cuda_floor", "cudnn"),
    *("sm", "ptx", "is_arm64_published", "pins"),
)


def rows_of(shelf: Shelf, version: str) -> list[Row]:
    """Return the rows of one version, highest CUDA first; none where no plugin can be installed with it."""
    release = _release_of(shelf, "jax", version)
    if release is None:
        return []
    requires = release.get("requires", [])
    extras = sorted({row[3] for row in requires if re.fullmatch(r"cuda[0-9]+", row[3])}, reverse=True)
    return [row for extra in extras if (row := _row(shelf, version, extra, requires)) is not None]


def _row(shelf: Shelf, version: str, extra: str, requires: list[list[str]]) -> Row | None:
    asked = specifiers(requires, extra=extra)
    name = f"jax-{extra}-plugin"
    bound = asked.get(f"{name}[with-cuda]")
    if bound is None:
        return None
    plugin = _newest(shelf, name, bound)
    inner = _release_of(shelf, name, plugin) if plugin else None
    if plugin is None or inner is None:
        return None
    files = shelf.files(name, plugin)
    library = specifiers(requires).get("jaxlib", "")
    newest = _newest(shelf, "jaxlib", asked.get("jaxlib") or library)
    fitting = [
        python
        for python in pythons_of([row.file for row in files], "x86_64")
        if newest is None or is_fitting(shelf.files("jaxlib", newest), python, "x86_64")
    ]
    speaker = max((row for row in files if row.file.endswith("x86_64.whl")), key=lambda row: row.file)
    targets = targets_of(shelf, speaker) or ()
    pins = {
        target: spec
        for target, spec in sorted(specifiers(inner.get("requires", []), extra="with-cuda").items())
        if target.startswith("nvidia-")
    }
    floor = re.search(r"[>=~]=([0-9]+\.[0-9]+)", pins.get(_runtime(pins), ""))
    if floor is None or not fitting:
        return None
    row: Row = {
        "version": version,
        "variant": extra,
        "released": day_of(shelf.files("jax", version)),
        "requires_python": requires_python_text(shelf.files("jax", version)),
        "extra": extra,
        "delivery": "plugin",
        "jaxlib": library,
        "plugin": plugin,
        "pythons": fitting,
        "is_pythons_complete": True,
        "platform_tag": platform_tag(speaker.file),
        "cuda_floor": floor[1],
        "cudnn": next((spec for target, spec in pins.items() if target.startswith("nvidia-cudnn")), None) or None,
        "sm": [target for target in targets if target.startswith("sm_")] or None,
        "ptx": [target for target in targets if target.startswith("compute_")] or None,
        "is_arm64_published": any(row.file.endswith("aarch64.whl") for row in files),
        "pins": pins,
        "source": ["pypi_jax"],
        "where": f"METADATA of jax and {name}, wheel tags and code for GPUs",
        "status": "measured",
        "confidence": "high",
    }
    where = f"lower bound on {_runtime(pins)}"
    row["evidence"] = {"cuda_floor": origin(["pypi_jax"], where, "derived", "high")}
    before = next((item for item in shelf.book.rows(FILE, "release") if item["variant"] == extra), None)
    for key in ("minimum_driver", "sm_min"):
        if before is None or before.get(key) is None or before["version"] == version:
            continue
        # Documents say these, wheels do not: what the release before had holds until somebody has read them.
        row[key] = before[key]
        source = before.get("evidence", {}).get(key, {}).get("source", before["source"])
        row["evidence"][key] = origin(
            source,
            f"taken over from {before['version']}",
            "derived",
            "low",
            "to be read in the release's own documents",
        )
    return row


def _runtime(pins: dict[str, str]) -> str:
    return next((name for name in pins if name.startswith("nvidia-cuda-runtime")), "")


def _newest(shelf: Shelf, name: str, bound: str) -> str | None:
    wanted = SpecifierSet(bound_text(bound))
    versions = [
        text
        for text, files in shelf.releases(name).items()
        if wanted.contains(text, prereleases=False) and not all(row.is_yanked for row in files)
    ]
    return max(versions, key=Version, default=None)


def _release_of(shelf: Shelf, name: str, version: str) -> Row | None:
    if not shelf.book.has(wheel_file(name)):
        return None
    for release in shelf.book.document(wheel_file(name))["releases"]:
        if Version(release["version"]) == Version(version):
            found: Row = release
            return found
    return None
