"""Another undeclared companion of a release that does not work."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.hidden import broken_bounds
from provision.audit.model import Environment, Finding, Options
from provision.matrix.load import Matrix

ID = "N05"

_OTHER_RULES = ("numpy", "setuptools", "nvidia-nvjitlink-cu12")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold every other bound of the facts against what is pinned."""
    return broken_bounds(environment, matrix, options, ID, None, other_than=_OTHER_RULES)
