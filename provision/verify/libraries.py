"""Which version of a CUDA library programs would get: the system's, LD_LIBRARY_PATH's, or one inside a wheel."""

from __future__ import annotations

from collections.abc import Sequence

from provision.probe.output import Unreadable
from provision.probe.parse.system import Library
from provision.probe.snapshot import Snapshot
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["LOADER", "agrees", "judge_library", "major_of"]

LOADER = ("ldconfig", "LD_LIBRARY_PATH")
"""Origins the loader itself looks in."""

_OF_TORCH = "PyTorch's"


def major_of(library: Library) -> str | None:
    """Return what stands behind ``.so.``: ``12`` of ``libcudart.so.12``; a link for compilers has its file's."""
    numbers = library.soname.partition(".so.")[2] or library.file.partition(".so.")[2]
    return numbers.split(".")[0] or None


def agrees(planned: str, found: str) -> bool:
    """Tell whether two versions are the same as far as the shorter one tells: 8.9.2 agrees with 8.9.2.26."""
    pairs = list(zip(_parts(planned), _parts(found), strict=False))
    return bool(pairs) and all(a == b for a, b in pairs)


def _parts(version: str) -> list[str]:
    return version.partition("+")[0].partition("-")[0].split(".")


def judge_library(
    host: Snapshot, planned: str, *, label: str, soname: str, wheel: str, said: str, of_torch: str | None = None
) -> Outcome:
    """Compare every copy that a program may get with the planned version.

    A wheel's own copy is what its framework loads, so the system's is judged only where there is no such copy; one on
    LD_LIBRARY_PATH comes before both.

    Args:
        host: Where to look.
        planned: Version.
        label: Name for people (``cuDNN``).
        soname: Beginning of the file name (``libcudnn.so``).
        wheel: Beginning of the distribution's name (``nvidia-cudnn``).
        said: Field of :class:`~provision.probe.parse.frameworks.Framework` in which PyTorch tells it.
        of_torch: Version planned for PyTorch's own copy, where that is another one.
    """
    reasons: list[str] = []
    paths: list[tuple[str, str]] = []
    own: list[tuple[str, str]] = []
    majors: dict[str, str] = {}
    try:
        copies = [library for library in host.libraries if library.soname.startswith(soname) and not library.is_stub]
    except Unreadable as error:
        copies = []
        reasons.append(error.reason)
    for library in copies:
        version = library.version or major_of(library)
        if version is None:
            continue
        if library.origin in LOADER and (major := major_of(library)):
            majors[major] = library.path
        (own if library.origin == "python" else paths).append((library.path, version))
    own += _packages(host, wheel, reasons) + _torch(host, said, label, reasons)
    shadowing = [
        copy for copy, library in zip(_located(copies), copies, strict=True) if library.origin == "LD_LIBRARY_PATH"
    ]
    judged = [copy for copy in shadowing if copy[1]] + (own or paths)
    plans = {
        where: of_torch if of_torch and (where.startswith(_OF_TORCH) or "/torch/lib/" in where) else planned
        for where, _ in judged
    }
    wrong = [(where, version) for where, version in dict.fromkeys(judged) if not agrees(plans[where], version)]
    if wrong:
        told = "; ".join(f"{where} is {version}" for where, version in wrong)
        wanted = dict.fromkeys(plans[where] for where, _ in wrong)
        return failed(told, f"{label} {' and '.join(wanted)}", subjects=[where for where, _ in wrong])
    if len(majors) > 1:
        told = " and ".join(f"{path} ({major})" for major, path in sorted(majors.items()))
        return failed(
            f"the loader finds two majors of {label}: {told}", f"{label} {planned} alone", subjects=majors.values()
        )
    if judged:
        return passed(f"{label} is {max((version for _, version in judged), key=len)}")
    if reasons:
        return unknown(reasons[0])
    return failed(f"there is no {label}", f"{label} {planned}")


def _located(copies: Sequence[Library]) -> list[tuple[str, str]]:
    return [(library.path, library.version or major_of(library) or "") for library in copies]


def _packages(host: Snapshot, wheel: str, reasons: list[str]) -> list[tuple[str, str]]:
    try:
        packages = host.python.packages
    except Unreadable as error:
        reasons.append(error.reason)
        return []
    return [(name, version) for name, version in packages.items() if name.startswith(wheel)]


def _torch(host: Snapshot, said: str, label: str, reasons: list[str]) -> list[tuple[str, str]]:
    try:
        version = getattr(host.torch, said)
    except Unreadable as error:
        reasons.append(error.reason)
        return []
    return [(f"{_OF_TORCH} {label}", version)] if isinstance(version, str) else []
