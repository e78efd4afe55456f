"""What the distributions of an environment need of the system that their wheels do not bring."""

from __future__ import annotations

from collections.abc import Iterable

from provision.matrix.load import Matrix


def system_packages(matrix: Matrix, names: Iterable[str], os_id: str) -> tuple[str, ...]:
    """Return the apt packages that distributions need on a system, as far as the facts know.

    Args:
        matrix: The facts.
        names: Normalised names of the distributions of an environment.
        os_id: The system, an id of ``os.toml``; on one whose packages nobody knows there are none.

    Returns:
        Names of packages, sorted.
    """
    wanted = frozenset(names)
    needs = matrix.rows_where("system_libraries.toml", "need", "id", wanted.__contains__)
    if not needs:
        return ()
    ids = {library for row in needs for library in row.libraries}
    libraries = matrix.rows_where("system_libraries.toml", "library", "id", ids.__contains__)
    return tuple(sorted({package for row in libraries for package in row.packages.get(os_id, "").split()}))
