"""A finding in the words of the facts: its severity, and a remedy where the rule has nothing closer to say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from provision.audit.model import Edit, Finding, Span, Way
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.resolve.stack import FactRef


def found(
    matrix: Matrix,
    rule: str,
    *,
    span: Span,
    message: str,
    reasons: Iterable[str] = (),
    hint: str = "",
    facts: Iterable[FactRef | str] = (),
    ways: Iterable[Way] = (),
    edits: Iterable[Edit] = (),
    fix: str = "",
    severity: str = "",
) -> Finding:
    """Return a finding of a rule.

    Args:
        matrix: The facts; the rule's row gives severity and remedy.
        rule: Id of the rule.
        span: The words to point at.
        message: What is wrong, without a full stop.
        reasons: Why, most general first.
        hint: The way out, the row's remedy when empty.
        facts: What it rests on.
        ways: Ways out to try; looked for only where the finding stands.
        edits: A safe fix.
        fix: What the edits do.
        severity: How grave it is, the row's severity when empty.
    """
    row = matrix.audit_rules[rule]
    ids = (fact if isinstance(fact, str) else fact.id for fact in facts)
    return Finding(
        rule=rule,
        severity=severity or row.severity,
        span=span,
        message=message,
        reasons=tuple(dict.fromkeys(reasons)),
        hint=hint or row.remedy,
        facts=tuple(dict.fromkeys(ids)),
        ways=ways,
        edits=tuple(edits),
        fix=fix,
    )
