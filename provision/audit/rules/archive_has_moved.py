"""The package manager of a base asks an archive that is no longer where the base looks for it."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.apt import of_release
from provision.audit.model import Base, Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "B15"

_PROGRAMS = ("apt-get", "apt", "yum", "dnf", "microdnf")
_CALLS = ("update", "install", "upgrade", "makecache", "groupinstall")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the first call over a base whose release was moved to where old ones are kept."""
    base = environment.base
    if base is None or not _is_moved(matrix, base):
        return
    for command, program, texts in of_release(environment, _PROGRAMS):
        if not any(text in _CALLS for text in texts):
            continue
        yield found(
            matrix,
            ID,
            span=command.span,
            message=f"{program} finds no archive for {base.repository}:{base.tag}",
            reasons=("the release has ended, and its packages were moved to where old releases are kept",),
        )
        return


def _is_moved(matrix: Matrix, base: Base) -> bool:
    """Tell whether a part of the tag names a release whose archive was moved."""
    moved = matrix.setting("audit_rules.toml", "moved_archives").entries.get(base.repository or "", "").split()
    parts = base.tag.split("-")
    return any(part == name or part.startswith(f"{name}.") for part in parts for name in moved)
