"""An index beside PyPI, and a framework whose version is left open."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import may_have_frameworks
from provision.audit.channels import conda_pytorch
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import frameworks, index_variant
from provision.matrix.load import Matrix

ID = "C05"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for an open version where several indexes compete for it."""
    if any(conda_pytorch(environment)):
        return
    earlier: set[tuple[str, str]] = set()
    for wanted in frameworks(environment, matrix):
        install = wanted.install
        key = (wanted.framework, install.target)
        if key in earlier:
            continue
        earlier.add(key)
        if wanted.framework != "torch" or wanted.version is not None or wanted.requirement.applies is not True:
            continue
        if may_have_frameworks(matrix, environment) and not install.target:
            # What is there already is not taken from anywhere.
            continue
        if not install.has_default_index or wanted.requirement.index is not None or wanted.requirement.url is not None:
            continue
        if install.installer != "pip" and not install.index_strategy.startswith("unsafe"):
            continue
        extra = [index for index in install.indexes if index.kind in ("extra", "find-links")]
        variant = next((name for index in extra if (name := index_variant(matrix, index.url))), None)
        if variant is None:
            continue
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"{wanted.requirement.text} may come from PyPI and not from the index of {variant}",
            reasons=("the highest version of all indexes is taken, and PyPI often has a higher one",),
        )
