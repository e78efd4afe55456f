"""Rows of PyTorch: what an index serves as ``torch``, with the versions that belong to it."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import Version

from provision.index.page import IndexFile
from provision.refresh.binary import ARCH_LIST, abi_of_config, assignments_of, newest_glibc, targets_of
from provision.refresh.book import Book, Row
from provision.refresh.client import UnreachableError
from provision.refresh.frameworks.row import bound_text, day_of, exact, origin, requires_python_text, specifiers
from provision.refresh.tags import MACHINES, is_fitting, platform_tag, pythons_of
from provision.refresh.wheels import Shelf, wheel_file

FAMILY = ("torch", "torchvision", "torchaudio", "triton", "cuda-toolkit")
"""Distributions whose pages the rows are made of."""
MEASURED_RELEASE = ("released", "requires_python", "glibc_symbol_max", "torchvision", "torchaudio")
MEASURED_BUILD = (
    *("cuda", "index", "pythons", "pythons_with_companions", "platform_tag", "glibc", "cxx11_abi", "triton", "cudnn"),
    *("nccl", "sm", "ptx", "is_arm64_published", "arm64_index", "sm_arm64", "is_cuda_bundled", "pins", "toolkit_pins"),
)
_CUDA_NAMES = ("nvidia-", "cuda-")
_PAIR_DAYS = 3


def rows_of(shelf: Shelf, version: str) -> tuple[Row, Row] | None:
    """Return the ``release`` and the ``build`` row of what the index serves as one version.

    Args:
        shelf: Its pages of :data:`FAMILY` have been read and its wheel files brought up to date.
        version: A version of torch.

    Returns:
        The rows; ``None`` for a version without a CUDA build for linux/amd64, or whose wheels cannot be read.
    """
    files = shelf.files("torch", version)
    pythons = pythons_of([row.file for row in files], "x86_64")
    release = _release_of(shelf.book, "torch", version)
    if not pythons or release is None:
        return None
    seen = {machine: _inside(shelf, files, machine) for machine in MACHINES}
    here = seen["x86_64"]
    if here is None or here.get("cuda") is None:
        return None
    requires = release.get("requires", [])
    amd64 = specifiers(requires)
    pins = {name: bound for name, bound in sorted(amd64.items()) if name.startswith(_CUDA_NAMES)}
    variant = "cu" + here["cuda"].replace(".", "")
    vision, vision_how = _partner(shelf, "torchvision", version, files)
    audio, audio_how = _partner(shelf, "torchaudio", version, files)
    tag = platform_tag(next(row.file for row in files if row.file.endswith("x86_64.whl")))
    there = seen["aarch64"]
    is_arm64 = there is not None and there.get("cuda") == here["cuda"]
    row: Row = {
        "version": version,
        "released": day_of(files),
        "requires_python": requires_python_text(files),
        "variants": [variant],
        "is_variants_complete": False,
        "is_pythons_complete": True,
        "torchvision": vision,
        "torchaudio": audio,
        "glibc_symbol_max": here.get("glibc"),
        "source": ["pypi_torch", "pypi_torchvision", "pypi_torchaudio"],
        "where": "METADATA and wheel tags",
        "status": "measured",
        "confidence": "high",
        "note": "Only the PyPI build is proved to exist; the list of index builds was not seen.",
    }
    where = "highest GLIBC symbol version in libc10.so and libc10_cuda.so"
    row["evidence"] = (
        {"glibc_symbol_max": origin(["binary_elf"], where, "measured", "high")} if here.get("glibc") else {}
    )
    for name, partner, how in (("torchvision", vision, vision_how), ("torchaudio", audio, audio_how)):
        if partner is not None and how:
            row["evidence"][name] = origin([f"pypi_{name}"], how, "derived", "medium")
    build: Row = {
        "torch": version,
        "variant": variant,
        "cuda": here["cuda"],
        "index": "pypi",
        "is_listed": True,
        "pythons": list(pythons),
        "pythons_with_companions": [
            python
            for python in pythons
            if all(
                partner is not None and is_fitting(shelf.files(name, partner), python, "x86_64")
                for name, partner in (("torchvision", vision), ("torchaudio", audio))
            )
        ],
        "platform_tag": tag,
        "glibc": _glibc_of(tag),
        "cxx11_abi": here["abi"],
        "triton": amd64.get("triton") or None,
        "cudnn": _pinned(pins, "nvidia-cudnn"),
        "nccl": _pinned(pins, "nvidia-nccl"),
        "sm": here.get("sm"),
        "ptx": here.get("ptx"),
        "is_arm64_published": is_arm64 or None,
        "arm64_index": "pypi" if is_arm64 else None,
        "sm_arm64": there.get("sm") if is_arm64 and there is not None else None,
        "is_cuda_bundled": not pins,
        "pins": pins,
        "toolkit_pins": _toolkit_pins(shelf.book, pins),
        "source": ["pypi_torch"],
        "where": "METADATA, torch/version.py and wheel tags",
        "status": "measured",
        "confidence": "high",
    }
    build["evidence"] = _evidence(build, has_flag=bool(here["has_flag"]))
    return row, build


def _evidence(build: Row, *, has_flag: bool) -> Row:
    tags = origin(["pypi_torch", "pypi_torchvision", "pypi_torchaudio"], "wheel tags", "measured", "high")
    flag = "TorchConfig.cmake" if has_flag else "TorchConfig.cmake: flag absent, compiler default"
    needs = origin(["pypi_torch"], "Requires-Dist", "measured", "high")
    arch = origin(["binary_arch"], "CUDA_ARCH_FLAGS in torch/lib/libtorch_python.so", "measured", "high")
    arm = origin(["pypi_torch"], "torch/version.py of the linux/arm64 wheel", "measured", "high")
    origins = {
        "pythons_with_companions": tags,
        "cxx11_abi": origin(["binary_elf"], flag, "measured", "high" if has_flag else "medium"),
        "cudnn": needs,
        "nccl": needs,
        "sm": arch,
        "is_arm64_published": arm,
        "sm_arm64": arch,
        "toolkit_pins": origin(["pypi_cuda_toolkit"], "Requires-Dist of cuda-toolkit by extra", "measured", "high"),
    }
    return {key: value for key, value in origins.items() if build.get(key) not in (None, [], {})}


def inside(shelf: Shelf, version: str, machine: str) -> dict[str, Any] | None:
    """Return what the wheel of one machine has inside: CUDA, targets, glibc, ABI."""
    return _inside(shelf, shelf.files("torch", version), machine)


def _inside(shelf: Shelf, files: list[IndexFile], machine: str) -> dict[str, Any] | None:
    # The build differs by machine, not by Python: any wheel of a plain interpreter speaks for the others.
    fitting = [
        row for row in files if row.file.endswith(f"{machine}.whl") and "t-" not in row.file.rsplit("-", 1)[0][-6:]
    ]
    if not fitting:
        return None
    wheel_row = min(fitting, key=lambda row: row.file)
    kept = shelf.reader.keep(wheel_row, "torch")
    if kept is not None:
        return dict(kept)
    try:
        with shelf.reader.open(wheel_row) as wheel:
            said = assignments_of((wheel.read("torch/version.py") or b"").decode("utf-8", "replace"))
            config = (wheel.read("torch/share/cmake/Torch/TorchConfig.cmake") or b"").decode("utf-8", "replace")
            symbols = [
                found
                for name in ("torch/lib/libc10.so", "torch/lib/libc10_cuda.so")
                if (found := newest_glibc(wheel.read(name) or b""))
            ]
            targets = None
            if said.get("cuda"):
                targets = targets_of(wheel.scan("torch/lib/libtorch_python.so", ARCH_LIST))
    except UnreachableError as error:
        shelf.silent[wheel_row.file] = "; ".join((error.message, *error.because))
        return None
    flag = abi_of_config(config)
    found_inside = {
        "cuda": said.get("cuda"),
        "sm": list(targets[0]) if targets else None,
        "ptx": list(targets[1]) if targets else None,
        "glibc": max(symbols, key=Version) if symbols else None,
        "abi": 1 if flag is None else flag,
        "has_flag": flag is not None,
    }
    shelf.reader.keep(wheel_row, "torch", found_inside)
    return found_inside


def _partner(shelf: Shelf, name: str, version: str, files: list[IndexFile]) -> tuple[str | None, str]:
    """Return the companion of a torch version and, where that is not an exact pin, how it was found."""
    open_ended = []
    document = shelf.book.document(wheel_file(name))
    for release in document["releases"]:
        if release["index"] != "pypi" or Version(release["version"]).is_prerelease:
            continue
        pin = specifiers(release.get("requires", [])).get("torch")
        if exact(pin) is not None and Version(exact(pin) or "0") == Version(version):
            return release["version"], ""
        if exact(pin) is None:
            open_ended.append((release["version"], pin or ""))
    mine = day_of(files)
    for other, pin in open_ended:
        day = day_of(shelf.files(name, other))
        if pin and day and mine and abs((day - mine).days) <= _PAIR_DAYS:
            return other, "Requires-Dist and upload day"
        if not pin and day and mine and day <= mine:
            return other, "Requires-Dist; last release on the index"
    return None, ""


def _release_of(book: Book, name: str, version: str) -> Row | None:
    wanted = Version(version)
    for release in book.document(wheel_file(name))["releases"]:
        if Version(release["version"]) == wanted:
            found: Row = release
            return found
    return None


def _toolkit_pins(book: Book, pins: dict[str, str]) -> Row:
    """Return what the extras of the pinned cuda-toolkit metapackage ask for."""
    found: dict[str, str] = {}
    for name, bound in pins.items():
        extras = re.fullmatch(r"cuda-toolkit\[([a-z0-9,-]+)\]", name)
        version = exact(bound)
        if extras is None or version is None:
            continue
        release = _release_of(book, "cuda-toolkit", version)
        wanted = set(extras[1].split(","))
        for target, spec, marker, extra in (release or {}).get("requires", []):
            if extra in wanted and ("platform_machine" not in marker or '"x86_64"' in marker):
                found.setdefault(target, bound_text(spec))
    return dict(sorted(found.items()))


def _pinned(pins: dict[str, str], start: str) -> str | None:
    return next((exact(bound) for name, bound in pins.items() if name.startswith(start)), None)


def _glibc_of(tag: str) -> str | None:
    found = re.match(r"manylinux_([0-9]+)_([0-9]+)_", tag)
    return f"{found[1]}.{found[2]}" if found else None
