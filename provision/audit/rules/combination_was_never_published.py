"""A framework, its CUDA and its Python that were never published together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, Wanted, cuda_of, frameworks, is_offered, platform_of, python_of, resolve
from provision.audit.ways import ways_of
from provision.audit.wording import facts_of, reasons_of
from provision.matrix.load import Matrix
from provision.versions import spec_of

if TYPE_CHECKING:
    from provision.resolve.stack import Refusal

ID = "C02"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Ask the resolver about each wish; only a proved no counts."""
    for wanted in frameworks(environment, matrix):
        if wanted.requirement.applies is None and wanted.requirement.marker and wanted.version is not None:
            yield from _under_marker(environment, matrix, options, wanted)
            continue
        if wanted.requirement.applies is not True or wanted.variant == CPU or wanted.requirement.url is not None:
            continue
        is_open = wanted.framework == "torch" and wanted.variant is None and not wanted.is_default
        if is_open and wanted.version is None:
            continue
        allowed = _allowed(environment, wanted, options)
        if allowed is None and is_offered(environment, matrix, options, wanted):
            continue
        # Which plugins a release of jax has is another rule's matter.
        apart: dict[str, str | None] = {"cuda": None} if wanted.framework == "jax" else {}
        if allowed is not None:
            apart["python"] = allowed
        from provision.resolve.stack import Refusal

        refusal = resolve(environment, matrix, options, wanted, platform=None, **apart)
        if not isinstance(refusal, Refusal) or not refusal.is_proved or not _is_about_it(refusal):
            continue
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"{_shown(environment, options, wanted)} was never published",
            reasons=reasons_of(refusal),
            ways=ways_of(environment, matrix, options, wanted),
            facts=facts_of(refusal),
        )


def _under_marker(environment: Environment, matrix: Matrix, options: Options, wanted: Wanted) -> Iterable[Finding]:
    """Ask for each Python that the project and the marker leave; none of them may have a build."""
    from provision.audit.markers import holds
    from provision.resolve.stack import Refusal

    allowed = [
        row.version
        for row in matrix.pythons
        if not environment.pythons or f"{row.version}.99" in spec_of(environment.pythons)
    ]
    platforms = platform_of(environment, options)
    answers = {python: holds(wanted.requirement.marker, python, platforms) for python in allowed}
    if None in answers.values() or wanted.requirement.url is not None or wanted.variant == CPU:
        return
    left = [python for python, answer in answers.items() if answer]
    refusals = [resolve(environment, matrix, options, wanted, platform=None, python=python) for python in left]
    proved = [item for item in refusals if isinstance(item, Refusal) and item.is_proved and _is_about_it(item)]
    if not left or len(proved) != len(left):
        return
    yield found(
        matrix,
        ID,
        span=wanted.requirement.span,
        message=f"{wanted.framework} {wanted.version} where {wanted.requirement.marker} was never published",
        reasons=reasons_of(proved[0]),
        facts=facts_of(proved[0]),
    )


def _allowed(environment: Environment, wanted: Wanted, options: Options) -> str | None:
    """Return the Pythons that a project allows, ``None`` where one is in force or none are named."""
    return None if python_of(environment, wanted, options) else environment.pythons or None


_OWN = ("python", "cuda", "version", "complete")


def _is_about_it(refusal: Refusal) -> bool:
    """Tell whether the refusal speaks of builds, and not of drivers, images or requirement lines."""
    return bool(refusal.because) and all(reason.subject in _OWN for reason in refusal.because)


def _shown(environment: Environment, options: Options, wanted: Wanted) -> str:
    cuda = cuda_of(wanted.variant)
    parts = [f"{wanted.framework} {wanted.version or wanted.specifier or ''}".strip()]
    if cuda:
        parts.append(f"for CUDA {cuda}")
    python = python_of(environment, wanted, options) or environment.pythons
    if python:
        parts.append(f"for Python {python}" if not cuda else f"and Python {python}")
    return " ".join(parts)
