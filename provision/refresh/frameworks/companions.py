"""Rows of packages that are built against a framework."""

from __future__ import annotations

import json
import re
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from provision.index.page import IndexFile
from provision.refresh.binary import assignments_of
from provision.refresh.book import Row
from provision.refresh.client import UnreachableError
from provision.refresh.frameworks.row import bound_text, day_of, origin, requires_python_text
from provision.refresh.requires import reduce_requires
from provision.refresh.tags import platform_tag, pythons_of
from provision.refresh.wheels import Shelf

__all__ = ["FILE", "MEASURED", "row_of"]

FILE = "companions.toml"
MEASURED = (
    *("released", "requires_python", "requires", "built_with", "cuda", "sm", "extra_pins", "pythons", "platform_tags"),
)
_FRAMEWORKS = ("torch", "torchaudio", "torchvision", "triton")
_XFORMERS = "xformers/cpp_lib.json"
_ONNX = "onnxruntime/capi/build_and_package_info.py"


def row_of(shelf: Shelf, name: str, version: str) -> Row | None:
    """Return the row of one version of a package; ``None`` where its files cannot be read."""
    files = shelf.files(name, version)
    if not files:
        return None
    source = f"pypi_{name.removesuffix('-gpu').replace('-', '_')}"
    row: Row = {
        "package": name,
        "version": version,
        "released": day_of(files),
        "requires_python": requires_python_text(files),
        "source": [source],
        "status": "measured",
        "confidence": "high",
    }
    if not files[0].file.endswith(".whl"):
        return row | {"where": "source distributions; no wheel on the index"}
    speaker = max((item for item in files if "x86_64" in item.file), key=lambda item: item.file, default=files[0])
    try:
        said, bound = shelf.reader.metadata(speaker)
        found = _inside(shelf, name, speaker)
    except UnreachableError as error:
        shelf.silent[speaker.file] = "; ".join((error.message, *error.because))
        return None
    row["where"] = "METADATA and wheel tags"
    row["platform_tags"] = sorted({platform_tag(item.file) for item in files})
    needs = {target: bound_text(spec) for target, spec, _, _ in reduce_requires(said, (), bound)}
    if name == "onnxruntime-gpu":
        row["requires"] = dict(sorted(needs.items()))
        row["extra_pins"] = _extra_pins(said)
        row["pythons"] = _pythons(files)
        if found.get("cuda_version"):
            row["cuda"] = str(found["cuda_version"])
            row["evidence"] = {"cuda": origin([source], _ONNX, "measured", "high")}
    elif name == "triton":
        row["pythons"] = _pythons(files)
    else:
        row["requires"] = {target: needs[target] for target in _FRAMEWORKS if target in needs}
        if found:
            row["where"] = f"METADATA, wheel tags and {_XFORMERS}"
            row |= _built(found)
    return row


def _pythons(files: list[IndexFile]) -> list[str]:
    names = [item.file for item in files]
    return list(pythons_of(names, "x86_64") or pythons_of(names, "aarch64"))


def _extra_pins(said: tuple[str, ...]) -> dict[str, str]:
    """Return the CUDA wheels that extras ask for."""
    found = {}
    for text in said:
        requirement = Requirement(text)
        if requirement.marker is not None and "extra" in str(requirement.marker):
            name = canonicalize_name(requirement.name)
            if name.startswith("nvidia-"):
                found[name] = bound_text(str(requirement.specifier))
    return dict(sorted(found.items()))


def _inside(shelf: Shelf, name: str, speaker: IndexFile) -> dict[str, Any]:
    place = {"xformers": _XFORMERS, "onnxruntime-gpu": _ONNX}.get(name)
    if place is None:
        return {}
    kept = shelf.reader.keep(speaker, name)
    if kept is not None:
        return dict(kept)
    with shelf.reader.open(speaker) as wheel:
        content = wheel.read(place) or b""
    text = content.decode("utf-8", "replace")
    try:
        found = json.loads(text) if place.endswith(".json") else assignments_of(text)
    except (ValueError, RecursionError):
        found = {}
    shelf.reader.keep(speaker, name, found)
    return found if isinstance(found, dict) else {}


def _built(found: dict[str, Any]) -> Row:
    """Return what xformers' own record says of its build."""
    version = found.get("version") if isinstance(found.get("version"), dict) else {}
    environment = found.get("env") if isinstance(found.get("env"), dict) else {}
    row: Row = {}
    if version and version.get("torch"):
        row["built_with"] = f"torch {version['torch']}"
    digits = str((version or {}).get("cuda") or "")
    if re.fullmatch(r"[0-9]{3,6}", digits):
        # Written as 1208.
        row["cuda"] = f"{int(digits) // 100}.{int(digits) % 100}"
    targets = []
    for word in re.split(r"[ ;]+", str((environment or {}).get("TORCH_CUDA_ARCH_LIST") or "")):
        number = re.fullmatch(r"([0-9]+)\.([0-9]+)([af]?)(\+PTX)?", word)
        if number:
            digits = f"{number[1]}{number[2]}{number[3]}"
            targets.append(f"sm_{digits}")
            targets += [f"compute_{digits}"] if number[4] else []
    if targets:
        row["sm"] = list(dict.fromkeys(targets))
    return row
