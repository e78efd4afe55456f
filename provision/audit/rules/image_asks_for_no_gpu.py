"""A GPU image on a plain base that does not ask for GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import is_plain
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, effective
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS

ID = "E02"

_VARIABLE = "NVIDIA_VISIBLE_DEVICES"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the variable where a GPU build of a framework stands on a base that does not set it."""
    base = environment.base
    if base is None or environment.kind != "stage" or not environment.is_target or not is_plain(matrix, environment):
        return
    if _VARIABLE in environment.variables or environment.copies_from:
        return
    wishes = [wanted for name in FRAMEWORKS if (wanted := effective(environment, matrix, name)) is not None]
    if any(_is_for_gpus(wanted.variant, is_default=wanted.is_default) for wanted in wishes):
        yield found(
            matrix,
            ID,
            span=base.span,
            message=f"{_VARIABLE} is not set",
            reasons=(f"{base.repository}:{base.tag} does not set it, and without it the NVIDIA runtime gives no GPU",),
            hint="`ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility`",
        )


def _is_for_gpus(variant: str | None, *, is_default: bool) -> bool:
    if variant in (CPU, "system-cuda"):
        return False
    return variant is not None or is_default
