"""Packages that pin a framework: vllm, xformers, torchvision and their like."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.versions import admits_python, parse, spec_of

_FAMILY = ("torchvision", "torchaudio")
_TORCH = "torch"


def needs_of(matrix: Matrix, name: str, version: str) -> str | None:
    """Return the torch that one release needs (``==2.6.0``), ``None`` where nobody knows."""
    if name in _FAMILY:
        package = matrix.package(name)
        release = package.release(version) if package is not None else None
        if release is not None:
            return next((bound for need, bound, _, extra in release.requires if need == _TORCH and not extra), None)
        # Of all releases those of PyPI are known, which may name the build of their torch.
        published = matrix.published(name)
        other = published.release(version) if published is not None else None
        return next((need.specifier for need in other.needs() if need.name == _TORCH), None) if other else None
    for row in matrix.rows_with("companions.toml", "release", "package", name):
        if row.version == version:
            need: str | None = row.requires.get(_TORCH)
            return need
    return None


def fact_ids(matrix: Matrix, name: str, version: str) -> tuple[str, ...]:
    """Return the ids of the facts about a release; those of wheel files have none."""
    rows = matrix.rows_with("companions.toml", "release", "package", name)
    return tuple(f"companion/{name}-{row.version}" for row in rows if row.version == version)


def newest_needs(matrix: Matrix, name: str, python: str | None, specifier: str) -> tuple[str, str] | None:
    """Return the newest release that an installer would take and the torch that it needs.

    Args:
        matrix: The facts.
        name: Distribution.
        python: The Python in force; unknown, releases are not held against it.
        specifier: Versions that will do.
    """
    if name in _FAMILY:
        package = matrix.package(name)
        versions = [] if package is None else [version for version in package.versions if "+" not in version]
        if package is not None and python is not None:
            from provision.resolve.environment import wheel_rank

            versions = [
                version
                for version in versions
                if (release := package.release(version)) is not None
                and any(wheel_rank(wheel.file, python, "x86_64", None) for wheel in release.wheels)
            ]
    else:
        rows = matrix.rows_with("companions.toml", "release", "package", name)
        versions = [row.version for row in rows if python is None or _runs_on(row.requires_python, python)]
    fitting = [version for version in versions if _admits(specifier, version) and not parse(version).is_prerelease]
    if not fitting:
        return None
    newest = max(fitting, key=parse)
    needs = needs_of(matrix, name, newest)
    return (newest, needs) if needs is not None else None


def _admits(specifier: str, version: str) -> bool:
    try:
        return not specifier or version in spec_of(specifier)
    except ValueError:
        return False


def _runs_on(requires_python: str | None, python: str) -> bool:
    return requires_python is None or admits_python(requires_python, python)
