"""Rows of packages that are built against a framework."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from provision.index.page import IndexFile
from provision.records import NOTHING, record
from provision.refresh.binary import assignments_of
from provision.refresh.book import Row
from provision.refresh.client import UnreachableError
from provision.refresh.frameworks.row import bound_text, day_of, origin, requires_python_text, targets_of
from provision.refresh.requires import reduce_requires
from provision.refresh.tags import MACHINES, platform_tag, pythons_of
from provision.refresh.wheels import Shelf
from provision.versions import minor_of

FILE = "companions.toml"
CODE = ("sm", "sm_aarch64", "without_code", "is_code_optional")
"""What is read from the code for GPUs, for which nearly all of a wheel is fetched."""
MEASURED = (
    *("released", "requires_python", "requires", "paired_torch", "built_with", "cuda", "links", *CODE),
    *("extra_pins", "pythons", "platform_tags"),
)
_FRAMEWORKS = ("torch", "torchaudio", "torchvision", "triton", "tensorflow", "jax", "jaxlib", "transformers")
_CUDA_STARTS = ("nvidia-", "cuda-")
_XFORMERS = "xformers/cpp_lib.json"
_ONNX = "onnxruntime/capi/build_and_package_info.py"
_TORCHAO = "torchao/__init__.py"
_NEEDED = re.compile(rb"(?<=\x00)lib(?:(cudart)\.so\.([0-9]+)|(?:torch(?:_cuda|_python)?|c10)\.so)[0-9.]*(?=\x00)")
_SYSTEM = re.compile(rb"\x00(?:libc\.so\.6|libm\.so\.6|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libpthread\.so\.0)(?=\x00)")
"""What every compiled file needs: where these names stand, all that it needs stands."""
_FILES_MAX = 24
"""Compiled files of a wheel that are looked at; one with more may need something that was not seen."""


@record
class Habits:
    """What a refresh must be told of packages, as ``refresh.toml`` has it.

    Attributes:
        names: The packages whose rows are kept: what one of them asks of another is kept too.
        extras: Package → the extra under which it asks for its framework.
        stated: ``package version`` → the PyTorch that its publisher names for it.
        stated_in: Ids of the sources that say so.
        sources: Packages with a source of their own → its id.
        kernels: Packages whose compiled code for GPUs is read for its targets.
        optional: Those of them that go on without.
    """

    names: frozenset[str]
    extras: Mapping[str, str] = NOTHING
    stated: Mapping[str, str] = NOTHING
    stated_in: tuple[str, ...] = ()
    sources: Mapping[str, str] = NOTHING
    kernels: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


def row_of(shelf: Shelf, name: str, version: str, habits: Habits, *, is_code_read: bool = True) -> Row | None:
    """Return the row of one version of a package; ``None`` where its files cannot be read.

    Args:
        shelf: The index.
        name: The package.
        version: Of the package.
        habits: What a refresh must be told of packages.
        is_code_read: Whether the code for GPUs is read too, of a package that has some.
    """
    files = shelf.files(name, version)
    if not files:
        return None
    source = habits.sources.get(name, "pypi_extras")
    row: Row = {
        "package": name,
        "version": version,
        "released": day_of(files),
        "requires_python": requires_python_text(files),
        "source": [source],
        "status": "measured",
        "confidence": "high",
    }
    is_source = not files[0].file.endswith(".whl")
    speaker = max((item for item in files if "x86_64" in item.file), key=lambda item: item.file, default=files[0])
    try:
        said, bound = shelf.reader.metadata(speaker)
        found = {} if is_source else _inside(shelf, name, speaker)
        links = None if is_source or name in ("onnxruntime-gpu", "triton", "xformers") else _links(shelf, speaker)
        paired = _paired(shelf, name, version, speaker, habits)
        code = _kernels(shelf, files) if is_code_read and name in habits.kernels and not is_source else {}
    except UnreachableError as error:
        shelf.silent[speaker.file] = "; ".join((error.message, *error.because))
        return None
    if is_source:
        row["where"] = "PKG-INFO of the source distribution; no wheel on the index"
        row["requires"] = _binding(said, bound, name, habits)
        return row | paired
    row["where"] = "METADATA and wheel tags"
    row["platform_tags"] = sorted({platform_tag(item.file) for item in files})
    if name == "onnxruntime-gpu":
        needs = {target: bound_text(spec) for target, spec, _, _ in reduce_requires(said, (), bound)}
        row["requires"] = dict(sorted(needs.items()))
        row["extra_pins"] = _extra_pins(said)
        row["pythons"] = _pythons(files)
        if found.get("cuda_version"):
            row["cuda"] = str(found["cuda_version"])
            row["evidence"] = {"cuda": origin([source], _ONNX, "measured", "high")}
        return row | code
    if name == "triton":
        row["pythons"] = _pythons(files)
        return row
    row["requires"] = _binding(said, bound, name, habits)
    if found:
        row["where"] = f"METADATA, wheel tags and {_XFORMERS}"
        row |= _built(found)
    elif links is not None:
        row["where"] = "METADATA, wheel tags and needed libraries"
        row["links"] = links or ["nothing"]
        majors = {item.removeprefix("cudart.") for item in links if item.startswith("cudart.")}
        if len(majors) == 1:
            row["cuda"] = majors.pop()
    if all(re.search(r"-cp3[0-9]+-cp3[0-9]+t?-", item.file) for item in files):
        row["pythons"] = _pythons(files)
    if name in habits.optional and ("sm" in code or "sm_aarch64" in code):
        code["is_code_optional"] = True
    return row | paired | code


def is_same_need(one: Row, other: Row) -> bool:
    """Tell whether two releases that are built against no PyTorch, nor pin anything, ask for the same."""
    for row in (one, other):
        is_pinning = any(bound.startswith("==") for bound in row.get("requires", {}).values())
        if is_pinning or "paired_torch" in row or "torch" in row.get("links", ()):
            return False
    fields = ("requires", "requires_python", "cuda", "links", *CODE, "pythons", "platform_tags")
    return all(one.get(field) == other.get(field) for field in fields)


def _binding(said: tuple[str, ...], bound: str | None, name: str, habits: Habits) -> dict[str, str]:
    """Return what a release asks, on any Python, of frameworks, CUDA wheels and packages that are kept here."""
    found: dict[str, str] = {}
    extra = habits.extras.get(name, "")
    for target, spec, marker, of in reduce_requires(said, (extra,) if extra else (), bound):
        bare = str(canonicalize_name(target.partition("[")[0]))
        is_kept = bare in _FRAMEWORKS or bare in habits.names or bare.startswith(_CUDA_STARTS)
        if is_kept and spec and of in ("", extra) and "python" not in marker.replace("platform_python", ""):
            found.setdefault(bare, bound_text(spec))
    return dict(sorted(found.items(), key=lambda item: (item[0] != "torch", item[0])))


def _links(shelf: Shelf, speaker: IndexFile) -> list[str] | None:
    """Return which libraries of CUDA and PyTorch the compiled files of a wheel need; ``None`` where not all was seen.

    What a file needs stands together, near its start, or near its end where a tool changed it.
    """
    kept = shelf.reader.keep(speaker, "links")
    if kept is None:
        with shelf.reader.open(speaker) as wheel:
            inside = wheel.names(r"(?![^/]*\.libs/).*\.so(\.[0-9.]+)?")
            is_whole = len(inside) <= _FILES_MAX
            found: set[str] = set()
            for member in inside[:_FILES_MAX]:
                text = wheel.head(member, _SYSTEM)
                is_whole = is_whole and _SYSTEM.search(text) is not None
                found |= {f"cudart.{match[2].decode()}" if match[1] else "torch" for match in _NEEDED.finditer(text)}
                if "torch" in found and len(found) > 1:
                    is_whole = True
                    break
            kept = {"links": sorted(found), "is_whole": is_whole}
        shelf.reader.keep(speaker, "links", kept)
    return list(kept["links"]) if kept["is_whole"] else None


def _kernels(shelf: Shelf, files: list[IndexFile]) -> Row:
    """Return what the compiled code of a release is for, of one wheel a machine, and whose wheel has none.

    A list that was not seen whole is left out.
    """
    row: Row = {}
    without = []
    for machine, field in zip(MACHINES, ("sm", "sm_aarch64"), strict=True):
        own = [item for item in files if machine in item.file and "musllinux" not in item.file]
        found = targets_of(shelf, max(own, key=lambda item: item.file)) if own else None
        if found:
            row[field] = found
        elif found is not None or (not own and any(item.file.endswith("-any.whl") for item in files)):
            without.append(machine)
    return row | ({"without_code": without} if without else {})


def _paired(shelf: Shelf, name: str, version: str, speaker: IndexFile, habits: Habits) -> Row:
    """Return the PyTorch that the publisher names for a release whose metadata leaves it open."""
    stated = habits.stated.get(f"{name} {version}")
    if stated is not None:
        return {"paired_torch": stated, "evidence": {"paired_torch": origin(habits.stated_in, name, "stated", "high")}}
    if name == "torchcodec":
        rows = _table_of_codec(shelf, name)
        spec, where = rows.get(version) or rows.get(minor_of(version)), "table in METADATA"
    elif name == "torchao" and speaker.file.endswith(".whl"):
        spec, where = _pair_of_ao(shelf, speaker, version), _TORCHAO
    else:
        return {}
    if spec is None:
        return {}
    return {"paired_torch": spec, "evidence": {"paired_torch": origin(["pypi_extras"], where, "measured", "high")}}


def _table_of_codec(shelf: Shelf, name: str) -> dict[str, str]:
    """Return minor → PyTorch of the table that the newest release has in its description."""
    versions = [version for version in shelf.releases(name) if not Version(version).is_prerelease]
    newest = max(versions, key=Version)
    speaker = max(shelf.files(name, newest), key=lambda item: item.file)
    kept = shelf.reader.keep(speaker, "table")
    if kept is None:
        with shelf.reader.open(speaker) as wheel:
            inside = wheel.names(r"[^/]+\.dist-info/METADATA")
            text = (wheel.read(inside[0]) or b"").decode("utf-8", "replace") if inside else ""
        rows = re.findall(r"^\|\s*`([0-9.]+)`\s*\|\s*`(>=)?([0-9]+\.[0-9]+)`\s*\|", text, re.MULTILINE)
        kept = {minor: f">={torch}" if at_least else f"=={torch}.*" for minor, at_least, torch in rows}
        shelf.reader.keep(speaker, "table", kept)
    return dict(kept)


def _pair_of_ao(shelf: Shelf, speaker: IndexFile, version: str) -> str | None:
    """Return the PyTorch for which torchao loads its kernels, as its own start-up code decides."""
    kept = shelf.reader.keep(speaker, "pair")
    if kept is None:
        with shelf.reader.open(speaker) as wheel:
            text = (wheel.read(_TORCHAO) or b"").decode("utf-8", "replace")
        least = re.search(r"min_torch_version = _parse_version\(\"([0-9.]+)\"\)", text)
        pairs = re.findall(r"\(_parse_version\(\"([0-9.]+)\"\), _parse_version\(\"([0-9.]+)\"\)\)", text)
        exact = [torch for own, torch in pairs if own == version]
        kept = {"torch": f">={least[1]}" if least else f"=={exact[0]}" if len(exact) == 1 else None}
        shelf.reader.keep(speaker, "pair", kept)
    found: str | None = kept["torch"]
    return found


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
