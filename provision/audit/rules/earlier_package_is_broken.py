"""A later command that puts a release in place which a package from an earlier one does not go with."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.installed import broken_by_later
from provision.audit.model import Environment, Finding, Options
from provision.audit.rules import spans_of
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "C22"

_CLOSER = ("C03", "C08", "C09", "C10", "C11", "C12", "N01", "N02", "N03", "N05")
"""Rules that say of some of these what they mean."""


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Walk the commands as an installer does; one finding for each requirement that breaks something."""
    breaking = list(broken_by_later(environment, matrix, options))
    closer = set(spans_of(_CLOSER, environment, matrix, options)) if breaking else set()
    seen = set()
    for item in breaking:
        if item.by.span in closer or item.by.span in seen:
            continue
        seen.add(item.by.span)
        yield found(
            matrix,
            ID,
            span=item.by.span,
            message=f"{item.by.text} breaks {item.name} {item.version}",
            reasons=(
                f"`{item.install.command}` before installed {item.name} {item.version}, which needs {item.need.text}",
                *((item.because,) if item.because else ()),
                "an installer puts the other release there, and warns at most",
            ),
        )
