"""setuptools without what an older framework imports from it."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.hidden import broken_bounds
from provision.audit.model import Environment, Finding, Options
from provision.matrix.load import Matrix

ID = "N02"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold setuptools against what is imported from it."""
    return broken_bounds(environment, matrix, options, ID, ("setuptools",))
