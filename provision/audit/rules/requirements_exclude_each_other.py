"""A command whose requirements no installer can meet together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from provision.audit.model import Environment, Finding, Options
from provision.audit.rules import spans_of
from provision.audit.solved import Asked, asked_of, clash_of, ways_out
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.request import FRAMEWORKS

if TYPE_CHECKING:
    from provision.resolve.published import Clash

ID = "C17"

_CLOSER = ("C02", "C03", "C08", "C09", "C10", "C11", "C12", "C15", "C16", "L01", "N01", "N02", "N03", "N05")
"""Rules that say of some conflicts what they mean, and not only that they are there."""
_NEEDS_FRAMEWORK = "C11"
_FRAMEWORKS = frozenset((*FRAMEWORKS, "torchvision", "torchaudio"))
_CLASHES_MAX = 5


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Solve each command, again without a part of each conflict; a search that is given up says nothing."""
    for asked in asked_of(environment, matrix, options):
        for part, clash, python in _clashes(matrix, asked):
            wants = sorted(clash.wants, key=lambda want: asked.origins[want].span.start)
            spans = [asked.origins[want].span for want in wants]
            # A package that needs another framework may conflict with others too.
            is_about_framework = len(wants) == 1 or any(want.name in _FRAMEWORKS for want in wants)
            closer = [rule for rule in _CLOSER if is_about_framework or rule != _NEEDS_FRAMEWORK]
            if any(span in spans for span in spans_of(closer, environment, matrix, options)):
                continue
            yield found(
                matrix,
                ID,
                span=spans[-1],
                message=_message(asked, clash, python),
                reasons=clash.reasons,
                ways=ways_out(matrix, part, clash, python),
            )


def _clashes(matrix: Matrix, asked: Asked) -> Iterator[tuple[Asked, Clash, str | None]]:
    """Yield the conflicts of a command one after the other, each with the requirements among which it was found."""
    answer = clash_of(matrix, asked)
    for _ in range(_CLASHES_MAX):
        if answer is None:
            return
        clash, python = answer
        yield asked, clash, python
        # What conflicts with others too is kept, so that they are found as well.
        for want in sorted(clash.wants, key=lambda want: asked.origins[want].span.start, reverse=True):
            wants = tuple(item for item in asked.problem.wants if item != want)
            rest = replace(asked, problem=replace(asked.problem, wants=wants))
            answer = clash_of(matrix, rest) if wants else None
            if answer is not None and len(answer[0].wants) > 1:
                break
        else:
            return
        asked = rest


def _message(asked: Asked, clash: Clash, python: str | None) -> str:
    wants = sorted(clash.wants, key=lambda want: asked.origins[want].span.start)
    texts = list(dict.fromkeys(asked.origins[want].text.partition(";")[0].strip() for want in wants))
    shown = f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
    together = " together" if len(texts) > 1 else ""
    return f"{shown} cannot be installed{together}{f' for Python {python}' if python else ''}"
