"""A base image without a digest."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import cuda_image, has_moving_tag, is_proved_absent
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "B03"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Ask for a digest behind every tag that names a version."""
    base = environment.base
    if base is None or base.repository is None or base.reference is None or not environment.own_base:
        return
    if base.digest or has_moving_tag(base) or is_proved_absent(matrix, base):
        return
    is_ours = environment.is_gpu or (environment.kind == "stage" and environment.is_target)
    if not is_ours:
        return
    image = cuda_image(matrix, base)
    if image is not None and image.lifecycle == "deleted":
        return
    hint = ""
    if image is not None and image.digest is not None:
        hint = f"a published digest is `{image.digest}`; compare it with what the registry says"
    yield found(
        matrix,
        ID,
        span=base.span,
        message=f"{base.repository}:{base.tag} has no digest",
        reasons=("the tag can be moved to another image at any time",),
        hint=hint,
        facts=(f"image/{image.tag}",) if image is not None else (),
    )
