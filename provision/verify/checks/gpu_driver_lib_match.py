"""The loaded kernel module and the driver's user libraries are of one version."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_ASIDE = ("/compat/", "/i386-linux-gnu/", "/lib32/", "/stubs/")
"""Folders whose copies are meant to differ, or that no program of this machine loads."""


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the version in memory with the file names of the libraries the loader would take.

    NVML's own complaint counts too, as it has compared the two.
    """
    del expected, matrix
    loaded = host.driver.version
    said = host.output("nvidia-smi-xml")
    complains = "version mismatch" in f"{said.text[:2000]}{said.error[:2000]}"
    try:
        found = [
            library
            for library in host.libraries
            if library.soname in _DRIVER_LIBRARIES and not any(folder in library.path for folder in _ASIDE)
        ]
    except Unreadable as error:
        if complains:
            return failed(
                f"nvidia-smi says that its library differs from the loaded {loaded}", f"libraries of {loaded}"
            )
        return unknown(error.reason)
    wrong = [library for library in found if library.version not in (None, loaded)]
    if wrong:
        return failed(
            f"{', '.join(f'{library.path} is {library.version}' for library in wrong)}, the kernel runs {loaded}",
            f"libraries of {loaded}",
            subjects=[library.path for library in wrong],
        )
    if complains:
        return failed(f"nvidia-smi says that its library differs from the loaded {loaded}", f"libraries of {loaded}")
    nameless = [library for library in found if library.version is None]
    if nameless:
        return unknown(f"{nameless[0].path} does not tell its version")
    if not found:
        return unknown("the loader finds no library of the driver")
    return passed(f"kernel and libraries are {loaded}")
