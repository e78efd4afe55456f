"""An extra that the release lacks which an installer takes."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import ERROR, Environment, Finding, Options
from provision.audit.presence import taken_of_all
from provision.audit.rules import spans_of
from provision.audit.solved import asked_of, pinned_release, taken_of
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.matrix.published import PublishedPackage
from provision.resolve.request import FRAMEWORKS

ID = "C20"

_CLOSER = ("C08",)


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for extras in what a release says of itself; the build of a framework hangs on one."""
    for asked in asked_of(environment, matrix, options):
        for want, requirement in asked.origins.items():
            package = matrix.published(want.name) if want.extras and want.name not in asked.problem.opaque else None
            if package is None:
                continue
            pinned = pinned_release(matrix, asked, want)
            surely = (pinned[1],) if pinned is not None else taken_of(matrix, asked, want.name)
            versions = surely or taken_of_all(environment, matrix, options, want.name)[0]
            for extra in want.extras:
                if not versions or not all(_lacks(package, version, extra) for version in versions):
                    continue
                if requirement.span in spans_of(_CLOSER, environment, matrix, options):
                    continue
                yield found(
                    matrix,
                    ID,
                    span=requirement.span,
                    message=f"{want.name} {versions[0]} has no extra `{extra}`",
                    reasons=_reasons(package, want.name, versions, extra, is_pinned=pinned is not None),
                    severity=ERROR if want.name in FRAMEWORKS and surely else "",
                )


def _lacks(package: PublishedPackage, version: str, extra: str) -> bool:
    """Tell whether a release is known to lack an extra."""
    release = package.release(version)
    return release is not None and release.has_needs and extra not in release.extras


def _reasons(
    package: PublishedPackage, name: str, versions: tuple[str, ...], extra: str, *, is_pinned: bool
) -> Iterable[str]:
    if not is_pinned:
        shown = " or ".join((versions[0], *versions[-1:])) if len(versions) > 1 else versions[0]
        yield f"as of {package.dated} this takes {name} {shown}"
    yield "an installer warns and installs the package without it"
    have = [version for version in package.versions if extra in _extras(package, version)]
    yield f"the last release with it is {name} {have[0]}" if have else "no release that is known has it"


def _extras(package: PublishedPackage, version: str) -> tuple[str, ...]:
    release = package.release(version)
    return release.extras if release is not None else ()
