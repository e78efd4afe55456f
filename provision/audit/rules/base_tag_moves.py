"""A base whose tag names no version."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import has_moving_tag, is_cuda_repository
from provision.audit.model import INFO, Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "B06"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Ask for a version in the tag; nvidia/cuda has no such tags at all, which another rule says."""
    base = environment.base
    if base is None or base.repository is None or base.reference is None or not environment.own_base:
        return
    if not has_moving_tag(base) or is_cuda_repository(matrix, base):
        return
    if environment.kind == "stage" and (environment.is_gpu or environment.is_target):
        yield found(
            matrix,
            ID,
            span=base.span,
            message=f"{base.repository}:{base.tag or 'latest'} is another image every time it is built",
            reasons=("a tag without a version is moved with every release",),
            # Of other images linters of Dockerfiles say it.
            severity="" if environment.is_gpu else INFO,
        )
