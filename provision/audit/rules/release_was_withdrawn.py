"""A pin on a release that was withdrawn."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.solved import asked_of, pinned_release
from provision.audit.verdict import found
from provision.audit.ways import write_pins
from provision.matrix.load import Matrix
from provision.matrix.published import PublishedRelease
from provision.versions import parse

ID = "C19"

_BUILT_FOR_CUDA = ("torch", "torchvision", "torchaudio")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look pins up; an installer takes a withdrawn release only where one names it exactly."""
    for asked in asked_of(environment, matrix, options):
        for want, requirement in asked.origins.items():
            pinned = pinned_release(matrix, asked, want)
            release = pinned[0].release(pinned[1]) if pinned is not None else None
            if pinned is None or release is None or not release.is_yanked:
                continue
            if asked.problem.is_open and want.name in _BUILT_FOR_CUDA:
                # The index of a CUDA build has releases of its own under the same numbers.
                continue
            kept = [version for version in pinned[0].versions if not _is_yanked(pinned[0].release(version))]
            place = next((at for at, version in enumerate(kept) if _is_older(version, pinned[1])), len(kept))
            near = [*kept[place - 1 : place], *kept[place : place + 1]] if place else kept[:1]
            is_free = requirement.is_literal and not requirement.is_hashed and not requirement.local
            yield found(
                matrix,
                ID,
                span=requirement.span,
                message=f"{want.name} {pinned[1]} was withdrawn from the index",
                reasons=("installers take a withdrawn release only where a pin names it, and warn",),
                ways=[write_pins((requirement, version)) for version in near if is_free],
            )


def _is_yanked(release: PublishedRelease | None) -> bool:
    return release is None or release.is_yanked


def _is_older(version: str, other: str) -> bool:
    return parse(version) < parse(other)
