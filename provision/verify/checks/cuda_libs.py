"""No library of CUDA that programs would load stands in another's way."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.libraries import LOADER, major_of
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_RUNTIME = "libcudart.so"
_JIT = "libnvJitLink.so"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for stubs on the loader's path, two majors of the runtime, and a linker that shadows a wheel's own."""
    del matrix
    libraries = [library for library in host.libraries if library.origin in LOADER]
    faults: list[tuple[str, str]] = [
        (library.path, "a stub for linking is where programs load from") for library in libraries if library.is_stub
    ]
    runtimes = {major_of(library): library for library in libraries if library.soname.startswith(_RUNTIME)}
    if len(runtimes) > 1:
        majors = " and ".join(sorted(major or "an unknown major" for major in runtimes))
        paths = ", ".join(library.path for library in runtimes.values())
        faults.append((paths, f"the loader finds CUDA runtimes {majors}"))
    wheels = {library.soname: library for library in host.libraries if library.origin == "python"}
    for library in libraries:
        own = wheels.get(library.soname)
        is_shadow = library.origin == "LD_LIBRARY_PATH" and library.soname.startswith(_JIT)
        if is_shadow and own is not None and own.version != library.version:
            versions = f"{library.version or 'of no known version'}, the wheel's is {own.version or 'unknown'}"
            faults.append((library.path, f"it is {versions}, and LD_LIBRARY_PATH puts it first"))
    if faults:
        return failed(
            "; ".join(f"{path}: {fault}" for path, fault in faults),
            "one CUDA runtime, no stubs, nothing before a wheel's own libraries",
            subjects=[path for path, _ in faults],
        )
    if not libraries and (expected.gpus or host.has("driver-version")):
        return unknown("the loader finds no library of the driver or of CUDA, though the machine has GPUs")
    if not libraries:
        return skipped("the loader finds no library of CUDA")
    return passed(f"{len(libraries)} libraries, none in another's way")
