"""The forward-compatibility libraries are used only where they help."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.query import gpu_ids
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.versions import parse

__all__ = ["check"]

_PACKAGE = "cuda-compat"
_LIBRARY = "libcuda.so"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for a libcuda of a compat folder on the loader's path, and for the package beside GPUs it does not serve."""
    del expected
    names = {gpu.name or "GPU" for gpu in host.smi.gpus}
    unserved = sorted(name for name in names if not _is_served(matrix, name))
    driver = host.smi.driver_version
    if not host.libraries:
        return unknown("the loader finds no library of the driver, though the machine has GPUs")
    loaded = [
        library
        for library in host.libraries
        if library.soname.startswith(_LIBRARY)
        and "/compat/" in library.path
        and library.origin in ("ldconfig", "LD_LIBRARY_PATH")
    ]
    if loaded and unserved:
        return failed(
            f"{loaded[0].path} is loaded for {unserved[0]}, which it does not support",
            "no compatibility libraries on the loader's path",
            subjects=[library.path for library in loaded],
        )
    for library in loaded:
        if library.version is not None and parse(library.version) < parse(driver):
            return failed(
                f"{library.path} is {library.version}, older than the driver {driver}",
                "compatibility libraries newer than the driver, or none",
                subjects=[library.path],
            )
    try:
        installed = [package.name for package in host.packages if package.name.startswith(_PACKAGE)]
    except Unreadable:
        installed = []
    if installed and unserved and not host.virtualization.is_container:
        return failed(
            f"`{installed[0]}` is installed beside {unserved[0]}, which it does not support",
            "not installed",
            subjects=installed,
        )
    if loaded:
        return passed(f"{loaded[0].path} is newer than the driver {driver}")
    return passed("no program gets them")


def _is_served(matrix: Matrix, name: str) -> bool:
    ids = gpu_ids(matrix, name)
    segments = {gpu.segment for gpu in matrix.gpus if gpu.id in ids}
    return not segments or bool(segments - {"consumer"})
