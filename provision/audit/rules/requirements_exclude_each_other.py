"""A command whose requirements no installer can meet together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from provision.audit.model import Environment, Finding, Options
from provision.audit.rules import spans_of
from provision.audit.solved import Asked, asked_of, clash_of, ways_out
from provision.audit.verdict import found
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.resolve.published import Clash

ID = "C17"

_CLOSER = ("C02", "C03", "C08", "C09", "C10", "C11", "C12", "C15", "C16", "L01", "N01", "N02", "N03", "N05")
"""Rules that say of some conflicts what they mean, and not only that they are there."""


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Solve each command; a search that is given up says nothing."""
    for asked in asked_of(environment, matrix, options):
        answer = clash_of(matrix, asked)
        if answer is None:
            continue
        clash, python = answer
        wants = sorted(clash.wants, key=lambda want: asked.origins[want].span.start)
        spans = [asked.origins[want].span for want in wants]
        if any(span in spans for span in spans_of(_CLOSER, environment, matrix, options)):
            continue
        yield found(
            matrix,
            ID,
            span=spans[-1],
            message=_message(asked, clash, python),
            reasons=clash.reasons,
            ways=ways_out(matrix, asked, clash, python),
        )


def _message(asked: Asked, clash: Clash, python: str | None) -> str:
    wants = sorted(clash.wants, key=lambda want: asked.origins[want].span.start)
    texts = list(dict.fromkeys(asked.origins[want].text.partition(";")[0].strip() for want in wants))
    shown = f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
    together = " together" if len(texts) > 1 else ""
    return f"{shown} cannot be installed{together}{f' for Python {python}' if python else ''}"
