"""PyTorch among the packages of conda: which channel it comes from, which release, which CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.audit.model import Environment, Install, Requirement

PYTORCH = "pytorch"
"""The package, and the channel of PyTorch's own."""
CUDA_CHOICE = "pytorch-cuda"
"""The package that chooses a build of that channel by its CUDA."""
_NEUTRAL = frozenset(("nvidia", "defaults", "main", "nodefaults"))


def is_from_channel(install: Install, *, is_alone: bool = True) -> bool:
    """Tell whether an install takes PyTorch from its own channel.

    Args:
        install: An install of conda.
        is_alone: No other channel that builds PyTorch may be asked; else such a channel may come behind, where conda
            looks for what the first one lacks.
    """
    names = [(index.url or "?").rstrip("/").rpartition("/")[2] for index in install.indexes if index.kind == "channel"]
    if PYTORCH not in names:
        return False
    return set(names if is_alone else names[: names.index(PYTORCH)]) <= {PYTORCH, *_NEUTRAL}


def wish_of(requirement: Requirement) -> str | None:
    """Return the version or prefix that is asked for; ``None`` for ranges."""
    if requirement.version is not None:
        return requirement.version
    found = re.fullmatch(r"==([0-9]+(?:\.[0-9]+)*)(?:\.\*)?", requirement.specifier)
    return found[1] if found else None


def release_of(requirement: Requirement) -> str | None:
    """Return the release that is asked for by all its three numbers: ``=2.1.0`` is one, ``=2.1`` is several."""
    wish = wish_of(requirement)
    return wish if wish is not None and wish.count(".") == 2 else None


def conda_pytorch(environment: Environment) -> Iterator[tuple[Install, Requirement]]:
    """Yield every wish for PyTorch as a package of conda, with its install."""
    for install, requirement in environment.requirements():
        if requirement.ecosystem == "conda" and requirement.name == PYTORCH:
            yield install, requirement
