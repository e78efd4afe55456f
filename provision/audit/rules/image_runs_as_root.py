"""An image whose last user is root."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import starts_as_root
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "S01"

_ROOT = ("root", "0")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at the user that the image is left with."""
    base = environment.base
    if environment.kind != "stage" or not environment.is_target or base is None:
        return
    user = environment.user
    if user is None:
        if base.repository is not None and starts_as_root(matrix, base):
            yield found(
                matrix,
                ID,
                span=environment.span,
                message="the image runs as root",
                reasons=(f"{base.repository}:{base.tag} starts as root, and no USER changes that",),
            )
    elif user.text is not None and user.text.partition(":")[0] in _ROOT:
        yield found(matrix, ID, span=user.span, message="the image runs as root", reasons=("the last USER is root",))
