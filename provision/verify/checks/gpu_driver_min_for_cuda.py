"""The driver is new enough for the CUDA of the stack."""

from __future__ import annotations

from collections.abc import Iterator

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.versions import branch_of, parse

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare with the highest floor among the lock's, the planned CUDA's and those of installed frameworks.

    Source: CUDA compatibility guide: minor-version compatibility gives each CUDA major one floor; a forward
    compatibility package lifts listed branches on data-centre GPUs.
    """
    loaded = host.find_driver_version()
    floors: list[tuple[str, str]] = []
    unclear: list[str] = []
    if expected.driver_minimum is not None:
        floors.append((expected.driver_minimum, "the lock"))
    for cuda, where in _wanted(host, expected):
        releases = matrix.cuda_below(".".join(cuda.split(".")[:2]))
        floors += [(release.minimum_driver, f"CUDA {cuda} of {where}") for release in releases]
        if not releases:
            unclear.append(f"the facts do not know CUDA {cuda} of {where}")
    if not floors:
        return unknown(unclear[0]) if unclear else skipped("no CUDA is planned and no framework with CUDA is installed")
    try:
        floor, why = max(floors, key=lambda pair: parse(pair[0]))
        is_enough = parse(loaded) >= parse(floor)
    except ValueError as error:
        return unknown(str(error))
    if is_enough:
        return unknown(unclear[0]) if unclear else passed(f"driver {loaded}, {why} needs {floor}")
    if (bridge := _compatibility(host, matrix, floor, loaded)) is not None:
        return passed(f"driver {loaded} is below {floor} of {why}, and {bridge} lifts it")
    return failed(f"driver {loaded}, and {why} needs {floor}", f"{floor} or newer")


def _wanted(host: Snapshot, expected: Expectation) -> Iterator[tuple[str, str]]:
    if expected.cuda is not None:
        yield expected.cuda, "the plan"
    for name in ("torch", "tensorflow", "jax"):
        try:
            framework = getattr(host, name)
        except Unreadable:
            continue
        if framework.cuda:
            yield framework.cuda, name


def _compatibility(host: Snapshot, matrix: Matrix, floor: str, loaded: str) -> str | None:
    """Return the path of a forward-compatibility library that serves the loaded branch, if one is found."""
    branches = {
        branch
        for release in matrix.cuda
        if release.minimum_driver == floor
        for branch in release.forward_compatibility_branches or ()
    }
    if branch_of(loaded) not in branches:
        return None
    try:
        found = [library for library in host.libraries if library.soname == "libcuda.so.1" and library.version]
        return next(
            (row.path for row in found if "/compat/" in row.path and parse(row.version or "") >= parse(floor)), None
        )
    except (Unreadable, ValueError):
        return None
