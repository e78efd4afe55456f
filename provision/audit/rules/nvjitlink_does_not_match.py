"""nvJitLink of another CUDA minor than the rest of torch's libraries."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.hidden import broken_bounds
from provision.audit.model import Environment, Finding, Options
from provision.matrix.load import Matrix

ID = "N03"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold a pinned nvJitLink against the build of torch; a newer one has the symbols of older ones too."""
    return broken_bounds(environment, matrix, options, ID, ("nvidia-nvjitlink-cu12",), is_newer_fine=True)
