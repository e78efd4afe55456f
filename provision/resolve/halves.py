"""The two halves of an environment: what the facts decide, and what a resolver of Python packages decides.

Frameworks, their CUDA libraries and compilers are chosen here, from facts, and stand. Whatever else is in the
environment is the open half: a resolver chooses it, under the bounds that the first half and the facts set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from provision.matrix.load import Matrix
from provision.matrix.model import HiddenConstraint
from provision.records import record
from provision.resolve.environment import MACHINES, applies
from provision.resolve.options import demands_of, offer
from provision.resolve.request import Request, matches
from provision.resolve.stack import Stack

_CUDA_PREFIXES = ("nvidia-", "cuda-")
_FRAMEWORK_PREFIXES = ("torch", "triton", "tensorflow", "jax", "keras", "xla")
_DECIDED = ("torch", "torchvision", "torchaudio", "triton", "tensorflow", "jax", "jaxlib")
_DECIDED_PREFIXES = ("nvidia-", "cuda-toolkit", "jax-cuda")


@record
class Fixed:
    """A distribution of the first half.

    Attributes:
        name: Normalised.
        version: With its local part.
        requires: What it needs on this Python and machine, as requirement lines.
    """

    name: str
    version: str
    requires: tuple[str, ...]


@record
class Halves:
    """An environment taken apart.

    Attributes:
        fixed: The first half, by name.
        added: Requirement lines of what the first half needs beside it without saying so.
        bounds: Requirement lines that limit the open half and add nothing to it.
        preferred: Name → version of the open half that the facts would take.
    """

    fixed: tuple[Fixed, ...]
    added: tuple[str, ...]
    bounds: tuple[str, ...]
    preferred: Mapping[str, str]


def layer_of(name: str) -> str:
    """Return the layer of an image in which a distribution of the solved environment lies, by how seldom it changes."""
    if name.startswith(_CUDA_PREFIXES):
        return "cuda"
    return "framework" if name.startswith(_FRAMEWORK_PREFIXES) else "rest"


def is_open(name: str) -> bool:
    """Tell whether a distribution of the solved environment belongs to the open half."""
    return name not in _DECIDED and not name.startswith(_DECIDED_PREFIXES)


def split(stack: Stack, matrix: Matrix) -> Halves:
    """Take the environment of a stack apart.

    Args:
        stack: The stack; its ``image`` part and its Python must be there.
        matrix: The facts it was solved with.
    """
    image, python, machine = stack.image, stack.python, MACHINES[stack.platform]
    if image is None or python is None:
        return Halves(fixed=(), added=(), bounds=(), preferred={})
    given: dict[str, Any] = {}
    for framework, version in stack.frameworks.items():
        wish: dict[str, Any] = {framework: version}
        for option in offer(matrix, framework, Request(**wish), stack.platform):
            if option.is_known and option.version == version and option.variant == stack.variants.get(framework):
                given |= demands_of(matrix, option, python, machine)[1]
    fixed = []
    for package in image.packages:
        if package.layer == "user" or is_open(package.name):
            continue
        known = matrix.package(package.name)
        release = known.release(package.version) if known else None
        stated = given[package.name].requires if package.name in given else release.requires if release else ()
        lines = [
            f"{name}{specifier}"
            for name, specifier, marker, extra in stated
            if not extra and (not marker or applies(marker, python, machine))
        ]
        fixed.append(Fixed(name=package.name, version=package.version, requires=tuple(sorted(set(lines)))))
    preferred = {
        package.name: package.version for package in image.packages if package.layer != "user" and is_open(package.name)
    }
    added, bounds = hidden_needs(matrix, stack, stack.packages)
    return Halves(fixed=tuple(fixed), added=added, bounds=bounds, preferred=preferred)


def hidden_needs(matrix: Matrix, stack: Stack, versions: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what distributions need and their metadata does not say, as requirement lines, sorted.

    Args:
        matrix: The facts.
        stack: Says which builds of the frameworks and which Python are meant.
        versions: Name → version of what is installed.

    Returns:
        What has to be added, and what bounds a distribution that is there anyway.
    """
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for row in hidden_constraints(matrix, stack, versions):
        found[row.kind == "add"].update(f"{name}{bound}" for name, bound in bounds_of(row, stack.request).items())
    if stack.cuda:
        major = stack.cuda.partition(".")[0]
        for name, line in matrix.setting("constraints.toml", "cuda_cores").entries.items():
            if name in versions:
                found[True].add(line.format(cuda=major, version=versions[name]))
    return tuple(sorted(found[True])), tuple(sorted(found[False]))


def hidden_constraints(matrix: Matrix, stack: Stack, versions: Mapping[str, str]) -> Iterator[HiddenConstraint]:
    """Yield the hidden constraints that hold where these versions are installed, with the builds of a stack."""
    plain = {name: version.partition("+")[0] for name, version in versions.items()}
    return (
        row for row in matrix.constraints_of(plain) if binds(row, plain, stack.variants.values(), stack.python or "")
    )


def bounds_of(row: HiddenConstraint, request: Request) -> Mapping[str, str]:
    """Return what a hidden constraint asks for: less of what the lines of a request name, where less works too."""
    if not row.tolerates:
        return row.requires
    from provision.resolve.requirements import normalise_name, requirement_of

    own = {normalise_name(requirement_of(line).name) for line in (*request.requirements, *request.constraints)}
    return row.requires | {name: bound for name, bound in row.tolerates.items() if name in own}


def binds(row: HiddenConstraint, versions: dict[str, str], variants: Iterable[str], python: str) -> bool:
    """Tell whether a hidden constraint holds in an environment.

    Args:
        row: The constraint.
        versions: Name → version, without local part, of what is or will be there.
        variants: Builds of the frameworks (``cu118``).
        python: ``3.11`` or ``3.13t``.
    """
    version = versions.get(row.package)
    if version is None or not matches(row.versions or None, version):
        return False
    if row.variants and not set(row.variants) & set(variants):
        return False
    return row.pythons is None or matches(row.pythons, python.rstrip("t"))
