"""Wheels that projects publish beside the package index, for one PyTorch, CUDA, C++ ABI and Python each."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.model import PrebuiltWheels, TorchBuild
from provision.resolve.environment import MACHINES
from provision.resolve.requirements import parse_requirements
from provision.resolve.stack import Stack
from provision.versions import minor_of, parse, spec_of

_TRIED = 5
"""Releases of a package whose addresses are tried: a wheel may be gone, or have come after its release."""


def prebuilt_wheels(
    matrix: Matrix, package: str, build: TorchBuild, python: str, machine: str, *, is_known: bool = True
) -> tuple[tuple[str, str], ...]:
    """Return the releases of a package that have a wheel for a build of PyTorch, each with its address.

    Of some of these files a fact has the hash; whoever locks another one downloads it.

    Args:
        matrix: The facts.
        package: Normalised name.
        build: The build of PyTorch; one whose C++ ABI is unknown has no wheel that depends on it.
        python: The Python (``3.12``).
        machine: ``x86_64`` or ``aarch64``.
        is_known: Return what facts say to exist. Otherwise return what may: projects add wheels for a newer PyTorch to
            releases that came before it.

    Returns:
        Version and address, newest first.
    """
    minor = minor_of(build.torch)
    found = []
    for row in matrix.rows_where("prebuilt.toml", "release", "package", package.__eq__):
        if machine not in row.machines or (row.cxx11_abi and build.cxx11_abi not in row.cxx11_abi):
            continue
        cuda = _word_of(row, build, minor, is_known=is_known)
        if cuda is None:
            continue
        words = {"version": row.version, "cuda": cuda, "torch": minor, "digits": minor.replace(".", "")}
        words |= {"python": f"cp{python.replace('.', '')}", "abi": str(bool(build.cxx11_abi)).upper()}
        address = row.address.format(**words, machine=machine)
        is_there = python in row.pythons.get(minor, "").split()
        # What came before the newest PyTorch that a release has wheels for was left out on purpose.
        may_be = not is_there and parse(minor) > max(map(parse, row.pythons))
        if is_there if is_known else may_be:
            found.append((row.version, address))
    return tuple(sorted(found, key=lambda item: parse(item[0]), reverse=True))


def _word_of(row: PrebuiltWheels, build: TorchBuild, minor: str, *, is_known: bool) -> str | None:
    """Return what an address says of the CUDA of a build; absent where there is no wheel for it."""
    own = row.builds.get(minor, "").split()
    if not row.cuda:
        return build.variant if build.variant in own or not is_known else None
    major = build.cuda.partition(".")[0]
    word = row.cuda.get(major)
    if not is_known:
        return word or f"cu{major}"
    return word if not own or word in own else None


def hash_of(matrix: Matrix, package: str, address: str) -> str | None:
    """Return the SHA-256 that a fact has of a wheel that its project publishes."""
    rows = matrix.rows_where("prebuilt.toml", "release", "package", package.__eq__)
    file = address.rpartition("/")[2]
    return next((row.sha256[file] for row in rows if file in row.sha256), None)


def published_wheels(stack: Stack, matrix: Matrix) -> tuple[tuple[str, str, str], ...]:
    """Return which of the packages that a stack would compile have a wheel of their project: name, version, address.

    What a line takes from an address of its own has none.
    """
    return _wheels(stack, matrix, is_known=True, most=1)


def possible_wheels(stack: Stack, matrix: Matrix) -> tuple[tuple[str, str, str], ...]:
    """Return which wheels projects may have published for a PyTorch newer than those that the facts know wheels for.

    Whoever takes one asks its address first, as the ``setup.py`` of flash-attn does.

    Returns:
        Name, version and address; of a name the newest releases first.
    """
    return _wheels(stack, matrix, is_known=False, most=_TRIED)


def offered_wheels(stack: Stack, matrix: Matrix) -> tuple[tuple[str, str, str], ...]:
    """Return the wheels that projects publish in place of what is compiled: a few of each, those of facts first."""
    return (*_wheels(stack, matrix, is_known=True, most=_TRIED), *possible_wheels(stack, matrix))


def _wheels(stack: Stack, matrix: Matrix, *, is_known: bool, most: int) -> tuple[tuple[str, str, str], ...]:
    image, torch = stack.image, stack.frameworks.get("torch")
    if image is None or torch is None or stack.python is None:
        return ()
    build = next((row for row in matrix.torch_builds_of({torch}) if row.variant == stack.variants["torch"]), None)
    if build is None:
        return ()
    requires = [*image.user_requirements, *(line for extra in image.extras for line in extra.requires)]
    lines = list(parse_requirements("\n".join(requires), "lines"))
    found = []
    for name in image.compiled:
        own = [line for line in lines if line.name == name]
        if not own or any("://" in line.text for line in own):
            continue
        bounds = spec_of(",".join(line.specifier for line in own if line.specifier))
        wheels = prebuilt_wheels(matrix, name, build, stack.python, MACHINES[stack.platform], is_known=is_known)
        found += [(name, *item) for item in wheels if item[0] in bounds][:most]
    return tuple(found)
