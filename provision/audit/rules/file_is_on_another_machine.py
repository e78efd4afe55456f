"""A requirement that names a file of the machine on which the list was written."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options, Requirement
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "C25"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the folders that conda builds in, and for homes of people; one finding for each list."""
    marks = tuple(matrix.setting("audit_rules.toml", "build_folders").values)
    for install in environment.installs:
        if install.is_dry:
            continue
        missing = [item for item in install.requirements if _is_elsewhere(item, marks)]
        if missing:
            others = f", and {len(missing) - 1} more are such files" if missing[1:] else ""
            yield found(
                matrix,
                ID,
                span=missing[0].span,
                message=f"{missing[0].name} is a file of another machine",
                reasons=(f"`pip freeze` names the folder that a package of conda was built in{others}",),
            )


def _is_elsewhere(requirement: Requirement, marks: tuple[str, ...]) -> bool:
    url = requirement.url or ""
    if not url.startswith("file:") or requirement.applies is False:
        return False
    return any(mark in url for mark in marks)
