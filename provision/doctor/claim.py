"""What failing lines say of things, for texts that no diagnosis knows: a subject, and that it is missing or too old."""

from __future__ import annotations

import re
from collections.abc import Sequence

from provision.doctor.case import Case, Quote
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.suspect import find_suspect
from provision.matrix.model import Claim

_NEAR_LINES = 30
"""So near to the line that most likely failed something is still said of this failure."""

_EXCERPT_LINES = 3
"""Of a text this short somebody chose each line: it needs none that reads like an error."""

_MILD = re.compile(
    r"\b(?:WARN|Warning|WARNING|INFO|DEBUG|DEPRECATION)\b|(?:^|\s)[WID](?:[0-9]{4}| tensorflow)|[a-z]Warning: "
    r"|^[\[\s0-9.\]]{6,20} |NUMA node|load dynamic library|, accepting |\.so\.\*"
)
"""What goes on after it said so, and the kernel's lines, of which many speak of what is not there."""

_HANG = r"(?:hang|hung|freeze|freezing|frozen|stuck|deadlock)"
_OVER = re.compile(
    rf"(?:\b(?:no|not|never|without|avoids?|prevents?)|n't)\b (?:\w{{1,12}} )?{_HANG}"
    rf"|\b(?:may|might|could|can) (?:\w{{1,12}} )?(?:cause|lead to|result in)\b.{{0,16}}{_HANG}"
    r"|\bno longer (?:\w{1,12} )?(?:runs?|running|trains?|training|falls?)\b"
    r"|^(?!.*(?:\b(?:still|not|again)\b|n't\b)).*(?:^\W{0,4}fix\b"
    r"|\b(?:fixed|fixes|solved|solves|resolved|resolves)\b(?! (?:seed|length|size|shape|batch))"
    rf"|\b(?:works now|now works|unit tests?\b(?!.{{0,80}}{_HANG})))",
    re.IGNORECASE,
)
"""What people tell of a failure that is over, that might come, or that is wanted so."""

_BETWEEN = ".{0,80}"


def patterns_of(claim: Claim, subject: str) -> tuple[str, ...]:
    """Return the expressions for a line that says a claim of a subject, in either order."""
    if not claim.says:
        return (subject,)
    return f"(?:{subject}){_BETWEEN}{claim.says}", f"{claim.says}{_BETWEEN}(?:{subject})"


def guess(case: Case) -> tuple[str, Sign] | None:
    """Return the diagnosis whose subject the lines about the failure in a pasted text speak of, at low confidence.

    Of several claims near the line that most likely failed the first of the facts is taken, and of those the nearest.
    What people tell in lines that read like no error counts where no line that does has a claim.
    """
    rows: Sequence[Claim] = case.matrix.rows("diagnoses.toml", "claim")
    return _guess(case, [row for row in rows if not row.is_told]) or _hear(case, [row for row in rows if row.is_told])


def _hear(case: Case, rows: Sequence[Claim]) -> tuple[str, Sign] | None:
    names = dict(case.texts)
    for row in rows:
        for diagnosis, subject in row.of.items():
            for quote in case.find_all(subject):
                found = (
                    _low(diagnosis, quote) if quote.where in names and not _OVER.search(quote.match.string) else None
                )
                if found is not None and not found[1].is_aside:
                    return found
    return None


def _guess(case: Case, rows: Sequence[Claim]) -> tuple[str, Sign] | None:
    names = dict(case.texts)
    found = [
        (order, quote, diagnosis, not row.says)
        for order, (row, diagnosis, patterns) in enumerate(
            (row, diagnosis, patterns_of(row, subject)) for row in rows for diagnosis, subject in row.of.items()
        )
        for quote in case.find_all(*patterns)
        if quote.where in names and not _MILD.search(quote.line)
    ]
    failing = {where: _failing_line(names[where]) for where in {quote.where for _, quote, _, _ in found}}
    near = [
        (order, distance, diagnosis, quote)
        for order, quote, diagnosis, is_whole in found
        if (number := failing[quote.where][not is_whole]) is not None
        and (distance := abs(quote.number - number)) <= _NEAR_LINES
    ]
    if not near:
        return None
    _, _, diagnosis, quote = min(near, key=_rank)
    return _low(diagnosis, quote)


def _low(diagnosis: str, quote: Quote) -> tuple[str, Sign] | None:
    sign = hint(quote, confidence="low", unseen=("a message that names the cause: this one only speaks of it",))
    return (diagnosis, sign) if sign is not None else None


def _failing_line(text: str) -> tuple[int | None, int | None]:
    """Return the number, from 0, of the line that most likely failed: for whole statements, and for two words near.

    A short excerpt without a line that reads like an error may fail in its last one, where that is a whole statement.
    """
    suspect = find_suspect(text, has_error=True)
    if suspect is not None:
        return suspect.number - 1, suspect.number - 1
    lines = text.rstrip().splitlines()
    return (len(lines) - 1 if 0 < len(lines) <= _EXCERPT_LINES else None), None


def _rank(row: tuple[int, int, str, Quote]) -> tuple[bool, int, int]:
    order, distance, _, _ = row
    return distance > 0, order, distance
