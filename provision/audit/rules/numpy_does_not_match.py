"""NumPy of a major that the framework was not compiled for."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.hidden import broken_bounds
from provision.audit.model import Environment, Finding, Options
from provision.matrix.load import Matrix

ID = "N01"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold numpy against what the frameworks can use."""
    return broken_bounds(environment, matrix, options, ID, ("numpy",))
