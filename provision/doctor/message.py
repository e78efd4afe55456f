"""Diagnoses that messages alone tell: their expressions, and what they name, stand in the facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from provision.doctor.answer import complete
from provision.doctor.case import Case, Quote
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.matrix.model import Diagnosis

_PLACE = re.compile(r"\{([a-z_]{1,20})\}")


class Message:
    """The rule of a row with patterns: the state of the target where it is known, else its messages.

    Attributes:
        SYMPTOMS: The row's expressions, as a rule's module names them.
    """

    def __init__(self, row: Diagnosis) -> None:
        self.SYMPTOMS = row.patterns
        self._row = row

    def examine(self, case: Case) -> Sign | None:
        """Ask the row's signals; where they are not known find the message, and fill what it names into the steps."""
        row = self._row
        quote = case.find(*row.patterns)
        if row.is_pasted and quote is not None and quote.where not in dict(case.texts):
            return None
        sign = explain_faults(case, case.faults(*row.signals), expected=row.expected, quote=quote, unseen=row.unseen)
        if sign is not None or quote is None or not all(case.find(pattern) for pattern in row.needs):
            return sign
        if row.signals and case.is_well(*row.signals):
            return None
        groups = [pattern for pattern in row.patterns if "(?P<" in pattern]
        steps = fill(row.fix, complete(_named(quote, (case.find(pattern) for pattern in groups)), case))
        return hint(
            quote,
            confidence=row.message_confidence or "medium",
            expected=row.expected,
            fix=steps if steps != row.fix else (),
            unseen=row.unseen,
        )


def fill(steps: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return steps with their places filled, without those for which a value is not known.

    Steps behind one that was filled stand in for it where they begin with the same two words, and are left out.

    Args:
        steps: Sentences with places such as ``{library}``.
        values: Name of a place → text.
    """
    found: list[str] = []
    before: list[str] = []
    for step in steps:
        names = _PLACE.findall(step)
        if not all(name in values for name in names) or step.split()[:2] == before:
            continue
        before = step.split()[:2] if names else []
        found.append(_PLACE.sub(lambda place: values[place[1]], step))
    return tuple(found)


def _named(first: Quote, quotes: Iterable[Quote | None]) -> dict[str, str]:
    """Return what the groups of the lines name, the first line's before the others'."""
    values = {name: text for name, text in first.match.groupdict().items() if text}
    for quote in quotes:
        for name, text in quote.match.groupdict().items() if quote is not None else ():
            if text:
                values.setdefault(name, text)
    return values
