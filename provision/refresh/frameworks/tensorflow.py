"""Rows of TensorFlow."""

from __future__ import annotations

import re
from typing import Any

from provision.index.page import IndexFile
from provision.refresh.binary import assignments_of
from provision.refresh.book import Row
from provision.refresh.client import UnreachableError
from provision.refresh.frameworks.row import day_of, origin, requires_python_text, specifiers
from provision.refresh.tags import platform_tag, pythons_of
from provision.refresh.wheels import Shelf, wheel_file

FAMILY = ("tensorflow",)
MEASURED = (
    *("released", "requires_python", "pythons", "platform_tag", "glibc", "cuda", "cudnn_major", "sm", "ptx"),
    *("has_cuda_extra", "is_arm64_cuda", "pins", "numpy"),
)
_EXTRA = "and-cuda"
_BUILD = "tensorflow/python/platform/build_info.py"


def rows_of(shelf: Shelf, version: str) -> Row | None:
    """Return the row of one version; ``None`` where its wheels cannot be read or have no CUDA."""
    files = shelf.files("tensorflow", version)
    release = next(
        (row for row in shelf.book.document(wheel_file("tensorflow"))["releases"] if row["version"] == version), None
    )
    here = _inside(shelf, files, "x86_64")
    if release is None or not here or not here.get("is_cuda_build"):
        return None
    there = _inside(shelf, files, "aarch64")
    targets = [str(item) for item in here.get("cuda_compute_capabilities", ())]
    requires = release.get("requires", [])
    pins = {
        name: bound for name, bound in sorted(specifiers(requires, extra=_EXTRA).items()) if name.startswith("nvidia-")
    }
    tag = platform_tag(next(row.file for row in files if row.file.endswith("x86_64.whl")))
    glibc = re.match(r"manylinux_([0-9]+)_([0-9]+)_", tag)
    row: Row = {
        "version": version,
        "released": day_of(files),
        "requires_python": requires_python_text(files),
        "pythons": list(pythons_of([row.file for row in files], "x86_64")),
        "is_pythons_complete": True,
        "platform_tag": tag,
        "glibc": f"{glibc[1]}.{glibc[2]}" if glibc else None,
        "cuda": here.get("cuda_version"),
        "cudnn_major": str(here.get("cudnn_version", "")).partition(".")[0],
        "sm": [target for target in targets if target.startswith("sm_")],
        "ptx": [target for target in targets if target.startswith("compute_")],
        "has_cuda_extra": bool(pins),
        "is_arm64_cuda": bool(there.get("is_cuda_build")) if there else None,
        "pins": pins,
        "numpy": specifiers(requires).get("numpy"),
        "source": ["pypi_tensorflow"],
        "where": f"METADATA, wheel tags and {_BUILD}",
        "status": "measured",
        "confidence": "high",
    }
    if not row["cuda"] or not row["cudnn_major"] or not row["sm"]:
        return None
    row["evidence"] = {}
    if row["glibc"]:
        row["evidence"]["glibc"] = origin(["manylinux"], "platform tag", "derived", "high")
    if row["is_arm64_cuda"] is not None:
        where = f"{_BUILD} of the linux/arm64 wheel"
        row["evidence"]["is_arm64_cuda"] = origin(["pypi_tensorflow"], where, "measured", "high")
    return row


def _inside(shelf: Shelf, files: list[IndexFile], machine: str) -> dict[str, Any] | None:
    fitting = [row for row in files if row.file.endswith(f"{machine}.whl")]
    if not fitting:
        return None
    wheel_row = max(fitting, key=lambda row: row.file)
    kept = shelf.reader.keep(wheel_row, "tensorflow")
    if kept is not None:
        return dict(kept)
    try:
        with shelf.reader.open(wheel_row) as wheel:
            text = (wheel.read(_BUILD) or b"").decode("utf-8", "replace")
    except UnreachableError as error:
        shelf.silent[wheel_row.file] = "; ".join((error.message, *error.because))
        return None
    found = assignments_of(text).get("build_info")
    said = found if isinstance(found, dict) else {}
    shelf.reader.keep(wheel_row, "tensorflow", said)
    return said
