"""A package that is imported and that nothing installs."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.hidden import missing_packages
from provision.audit.model import Environment, Finding, Options
from provision.matrix.load import Matrix

ID = "N04"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for undeclared imports where the whole environment is known."""
    return missing_packages(environment, matrix, options, ID)
