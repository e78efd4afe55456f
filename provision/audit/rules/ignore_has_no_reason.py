"""A comment that ignores a rule and says no reason."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.matrix.load import Matrix

ID = "I01"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Yield nothing: comments are judged when every other rule has spoken."""
    return ()
