"""Wheels that projects publish beside the package index, for one PyTorch, CUDA, C++ ABI and Python each."""

from __future__ import annotations

from collections.abc import Iterable

from provision.matrix.load import Matrix
from provision.matrix.model import TorchBuild
from provision.resolve.environment import MACHINES
from provision.resolve.requirements import parse_requirements
from provision.resolve.stack import Stack
from provision.versions import parse, spec_of

__all__ = ["prebuilt_wheels", "published_lines", "wheels_in_place"]


def prebuilt_wheels(
    matrix: Matrix, package: str, build: TorchBuild, python: str, machine: str
) -> tuple[tuple[str, str], ...]:
    """Return the releases of a package that have a wheel for a build of PyTorch, each with its address.

    No fact has a hash of these files: whoever locks one downloads it.

    Args:
        matrix: The facts.
        package: Normalised name.
        build: The build of PyTorch; one whose C++ ABI is unknown has no wheel that depends on it.
        python: The Python (``3.12``).
        machine: ``x86_64`` or ``aarch64``.

    Returns:
        Version and address, newest first.
    """
    minor = ".".join(build.torch.split(".")[:2])
    found = []
    for row in matrix.rows_where("prebuilt.toml", "release", "package", package.__eq__):
        if row.builds:
            cuda = build.variant if build.variant in row.builds.get(minor, "").split() else None
        else:
            cuda = row.cuda.get(build.cuda.partition(".")[0])
        if cuda is None or machine not in row.machines or (row.cxx11_abi and build.cxx11_abi not in row.cxx11_abi):
            continue
        if python in row.pythons.get(minor, "").split():
            words = {"version": row.version, "cuda": cuda, "torch": minor, "digits": minor.replace(".", "")}
            words |= {"python": f"cp{python.replace('.', '')}", "abi": str(bool(build.cxx11_abi)).upper()}
            found.append((row.version, row.address.format(**words)))
    return tuple(sorted(found, key=lambda item: parse(item[0]), reverse=True))


def wheels_in_place(
    matrix: Matrix, compiled: Iterable[str], requires: Iterable[str], build: TorchBuild, python: str, machine: str
) -> tuple[tuple[str, str, str], ...]:
    """Return which of the packages that would be compiled have a wheel of their project: name, version, address.

    Args:
        matrix: The facts.
        compiled: What would be compiled, by normalised name.
        requires: Lines that ask for them; what one of them takes from an address of its own has none.
        build: The build of PyTorch.
        python: The Python (``3.12``).
        machine: ``x86_64`` or ``aarch64``.
    """
    lines = list(parse_requirements("\n".join(requires), "lines"))
    found = []
    for name in compiled:
        own = [line for line in lines if line.name == name]
        if not own or any("://" in line.text for line in own):
            continue
        bounds = spec_of(",".join(line.specifier for line in own if line.specifier))
        wheels = prebuilt_wheels(matrix, name, build, python, machine)
        found += [(name, *item) for item in wheels if item[0] in bounds][:1]
    return tuple(found)


def published_lines(stack: Stack, matrix: Matrix) -> tuple[str, ...]:
    """Return the lines (``name @ address``) that take a wheel in place of what a stack would compile."""
    image, torch = stack.image, stack.frameworks.get("torch")
    if image is None or torch is None or stack.python is None:
        return ()
    build = next((row for row in matrix.torch_builds_of({torch}) if row.variant == stack.variants["torch"]), None)
    if build is None:
        return ()
    requires = [*image.user_requirements, *(line for extra in image.extras for line in extra.requires)]
    found = wheels_in_place(matrix, image.compiled, requires, build, stack.python, MACHINES[stack.platform])
    return tuple(f"{name} @ {address}" for name, _, address in found)
