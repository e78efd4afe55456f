"""jax, jaxlib and CUDA plugins of different releases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, admits, effective
from provision.matrix.load import Matrix
from provision.matrix.model import JaxRelease

ID = "C08"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold jaxlib, the plugin and the extra against the release of jax."""
    wanted = effective(environment, matrix, "jax")
    if wanted is None or wanted.version is None:
        return
    rows = [row for row in matrix.jax if row.version == wanted.version]
    if not rows:
        return
    yield from _pins(environment, matrix, wanted, rows)
    if wanted.variant is None:
        return
    row = next((row for row in rows if row.variant == wanted.variant), None)
    if row is None:
        if all(row.is_pythons_complete for row in rows):
            have = ", ".join(sorted({row.variant for row in rows}))
            yield found(
                matrix,
                ID,
                span=wanted.requirement.span,
                message=f"jax {wanted.version} has no build for {wanted.variant}",
                reasons=(f"its CUDA builds are {have}", "pip warns about an unknown extra and installs the CPU build"),
                facts=[f"jax/{row.version}+{row.variant}" for row in rows],
            )
    elif row.delivery == "legacy" and _lacks_index(wanted):
        address = matrix.setting("frameworks/jax.toml", "legacy_index").value or ""
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"the CUDA build of jaxlib for jax {wanted.version} is not on PyPI",
            reasons=("CUDA builds of this time are on an index of Google's",),
            hint=f"add `--find-links {address}`",
            facts=(f"jax/{row.version}+{row.variant}",),
        )


def _lacks_index(wanted: Wanted) -> bool:
    install = wanted.install
    return (
        install.is_complete
        and not install.indexes
        and not install.has_no_index
        and not install.environment.get("PIP_FIND_LINKS")
    )


def _pins(environment: Environment, matrix: Matrix, wanted: Wanted, rows: list[JaxRelease]) -> Iterator[Finding]:
    for install, requirement in environment.requirements():
        if requirement.version is None or requirement.applies is not True or install.target != wanted.install.target:
            continue
        version = requirement.version.partition("+")[0]
        for row in rows:
            right = _right(matrix, requirement, row)
            if right is not None and not admits(right, version):
                yield found(
                    matrix,
                    ID,
                    span=requirement.span,
                    message=f"{requirement.text} does not go with jax {wanted.version}",
                    reasons=(f"jax {row.version} asks {requirement.name} {right}",),
                    facts=(f"jax/{row.version}+{row.variant}",),
                )
                break


def _right(matrix: Matrix, requirement: Requirement, row: JaxRelease) -> str | None:
    """Return the versions of jaxlib or of a plugin that a release admits."""
    package = matrix.package("jax")
    release = package.release(row.version) if package is not None else None
    for name, specifier, _, extra in release.requires if release is not None else ():
        if name.partition("[")[0] == requirement.name and specifier and extra in ("", row.variant):
            return specifier
    if requirement.name == "jaxlib" and row.jaxlib is not None:
        return row.jaxlib if row.jaxlib[0] in "<>=~!" else f"=={row.jaxlib}"
    return None
