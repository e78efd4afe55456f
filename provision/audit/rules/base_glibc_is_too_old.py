"""Wheels and installers that the C library of the base is too old for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, frameworks, resolve
from provision.matrix.load import Matrix
from provision.resolve.foreign import is_musl

ID = "B07"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the glibc of the base against that of the wheels."""
    base = environment.base
    if base is None or base.repository is None:
        return
    yield from _installers(environment, matrix)
    for wanted in frameworks(environment, matrix):
        if wanted.install.is_dry or wanted.requirement.applies is not True:
            continue
        what = f"{wanted.framework} {wanted.version}" if wanted.version else wanted.framework
        if is_musl(matrix, base.repository, base.tag):
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
    row = matrix.os_release(system)
    if row is None or row.glibc is None:
        return False
    if wanted.framework != "torch" or wanted.version is None:
        return True
    needs = {build.glibc for build in matrix.torch_builds_of({wanted.version}) if build.glibc}
    return any(_order(glibc) > _order(row.glibc) for glibc in needs)


def _installers(environment: Environment, matrix: Matrix) -> Iterator[Finding]:
    """Yield the newest installers of conda that are fetched and end with an error on this system."""
    row = matrix.os_release(environment.os)
    if row is None or row.glibc is None:
        return
    needs = matrix.setting("audit_rules.toml", "conda_installer_glibc").entries
    words = [word for command in environment.own_commands if command.is_certain for word in command.words]
    for word in (*environment.downloads, *words):
        file = (word.text or "").rpartition("/")[2]
        if file in needs and "://" in (word.text or "") and _order(row.glibc) < _order(needs[file]):
            yield found(
                matrix,
                ID,
                span=word.span,
                message=f"{file} does not run on {row.name}",
                reasons=(f"the newest Miniconda asks for glibc {needs[file]}, {row.name} has {row.glibc}",),
                hint="take a newer base, or an older installer by its version",
            )
            return


def _order(glibc: str) -> tuple[int, ...]:
    """Return what orders releases of glibc; they are plain numbers, and packaging takes long to import."""
    return tuple(int(part) for part in glibc.split("."))
