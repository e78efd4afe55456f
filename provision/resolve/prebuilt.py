"""Wheels that projects publish beside the package index, for one PyTorch, CUDA, C++ ABI and Python each."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.model import TorchBuild
from provision.versions import parse

__all__ = ["prebuilt_wheels"]


def prebuilt_wheels(
    matrix: Matrix, package: str, build: TorchBuild, python: str, machine: str
) -> tuple[tuple[str, str], ...]:
    """Return the releases of a package that have a wheel for a build of PyTorch, each with its address.

    No hash of these files is known, so what is taken from there is not locked.

    Args:
        matrix: The facts.
        package: Normalised name.
        build: The build of PyTorch; one whose C++ ABI is unknown has none.
        python: The Python (``3.12``).
        machine: ``x86_64`` or ``aarch64``.

    Returns:
        Version and address, newest first.
    """
    minor = ".".join(build.torch.split(".")[:2])
    found = []
    for row in matrix.rows_where("prebuilt.toml", "release", "package", package.__eq__):
        cuda = row.cuda.get(build.cuda.partition(".")[0])
        if cuda is None or machine not in row.machines or build.cxx11_abi not in row.cxx11_abi:
            continue
        if python in row.pythons.get(minor, "").split():
            words = {"version": row.version, "cuda": cuda, "torch": minor, "python": f"cp{python.replace('.', '')}"}
            found.append((row.version, row.address.format(**words, abi=str(bool(build.cxx11_abi)).upper())))
    return tuple(sorted(found, key=lambda item: parse(item[0]), reverse=True))
