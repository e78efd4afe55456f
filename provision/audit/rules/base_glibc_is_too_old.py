"""Wheels that the C library of the base cannot load."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, frameworks, resolve
from provision.matrix.load import Matrix

ID = "B07"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the glibc of the base against that of the wheels."""
    base = environment.base
    if base is None or base.repository is None:
        return
    names = matrix.setting("audit_rules.toml", "musl_images").values
    is_musl = any(name in base.tag or base.repository.rpartition("/")[2] == name for name in names)
    for wanted in frameworks(environment, matrix):
        if wanted.install.is_dry or wanted.requirement.applies is not True:
            continue
        what = f"{wanted.framework} {wanted.version}" if wanted.version else wanted.framework
        if is_musl:
            yield found(
                matrix,
                ID,
                span=wanted.requirement.span,
                message=f"{what} has no wheel for Alpine",
                reasons=(f"{base.repository}:{base.tag} has musl in place of glibc, and every wheel asks for glibc",),
                hint="stand on a Debian or Ubuntu image, such as the slim Python images",
            )
            return
        if environment.os is None or not _may_be_too_old(matrix, environment.os, wanted):
            continue
        from provision.resolve.stack import Refusal

        refusal = resolve(environment, matrix, options, wanted, os=environment.os)
        if isinstance(refusal, Refusal) and refusal.is_proved and any(item.subject == "os" for item in refusal.because):
            if isinstance(resolve(environment, matrix, options, wanted), Refusal):
                continue
            reasons = [item for item in refusal.because if item.subject == "os"]
            yield found(
                matrix,
                ID,
                span=wanted.requirement.span,
                message=f"{what} does not run on {environment.os}",
                reasons=[item.because for item in reasons],
                facts=[fact for item in reasons for fact in item.facts],
            )


def _may_be_too_old(matrix: Matrix, system: str, wanted: Wanted) -> bool:
    """Tell whether some build of the release needs a newer glibc than the system has; the rest is the resolver's."""
    have = next((row.glibc for row in matrix.os_releases if row.id == system), None)
    if have is None:
        return False
    if wanted.framework != "torch" or wanted.version is None:
        return True
    needs = {row.glibc for row in matrix.torch_builds_of({wanted.version}) if row.glibc}
    return any(_order(glibc) > _order(have) for glibc in needs)


def _order(glibc: str) -> tuple[int, ...]:
    """Return what orders releases of glibc; they are plain numbers, and packaging takes long to import."""
    return tuple(int(part) for part in glibc.split("."))
