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
    from provision.resolve.published import Clash, Want

    _Told = tuple[Clash, str | None]

ID = "C17"

_OF_ONE = ("C02", "C08", "C15", "C16", "L01")
_OF_PAIRS = ("C03", "C09", "C10", "C11", "C12", "N01", "N02", "N03", "N05")
"""Rules that say of some conflicts what they mean, and not only that they are there."""
_NEEDS_FRAMEWORK = "C11"
_FRAMEWORKS = frozenset((*FRAMEWORKS, "torchvision", "torchaudio"))
_CLASHES_MAX = 5


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Solve each command, again without a part of each conflict; a search that is given up says nothing.

    Conflicts that share a requirement have one cause, and are one finding.
    """
    for asked in asked_of(environment, matrix, options):
        told = [item for item in _clashes(matrix, asked) if not _is_told(environment, matrix, options, asked, item[0])]
        groups = _groups(told)
        for group in groups:
            wants = _in_order(asked, group)
            elsewhere = {want for other in groups if other is not group for want in _in_order(asked, other)}
            rest = tuple(want for want in asked.problem.wants if want not in elsewhere)
            pythons = {python for _, python in group}
            python = pythons.pop() if len(pythons) == 1 else None
            yield found(
                matrix,
                ID,
                span=asked.origins[wants[-1]].span,
                message=_message(asked, wants, python),
                reasons=tuple(dict.fromkeys(reason for clash, _ in group for reason in clash.reasons)),
                ways=ways_out(
                    matrix,
                    replace(asked, problem=replace(asked.problem, wants=rest)),
                    [clash.wants for clash, _ in group],
                    python,
                ),
            )


def _is_told(environment: Environment, matrix: Matrix, options: Options, asked: Asked, clash: Clash) -> bool:
    """Tell whether another rule says what a conflict means."""
    # What a package does not go with says nothing of why it cannot be installed by itself.
    closer: tuple[str, ...] = _OF_ONE if len(clash.wants) == 1 else (*_OF_ONE, *_OF_PAIRS)
    if not any(want.name in _FRAMEWORKS for want in clash.wants):
        # A package that needs another framework may conflict with others too.
        closer = tuple(rule for rule in closer if rule != _NEEDS_FRAMEWORK)
    spans = {asked.origins[want].span for want in clash.wants}
    return any(span in spans for span in spans_of(closer, environment, matrix, options))


def _groups(clashes: list[_Told]) -> list[list[_Told]]:
    """Return the conflicts, those together that share a requirement."""
    groups: list[list[_Told]] = []
    for item in clashes:
        wants = set(item[0].wants)
        near = [group for group in groups if any(wants.intersection(clash.wants) for clash, _ in group)]
        groups = [group for group in groups if group not in near]
        groups.append([*(other for group in near for other in group), item])
    return groups


def _in_order(asked: Asked, group: list[_Told]) -> list[Want]:
    """Return the requirements of some conflicts in the order of the file."""
    wants = dict.fromkeys(want for clash, _ in group for want in clash.wants)
    return sorted(wants, key=lambda want: asked.origins[want].span.start)


def _clashes(matrix: Matrix, asked: Asked) -> Iterator[_Told]:
    """Yield the conflicts of a command one after the other, each with the Python that it is about."""
    answer = clash_of(matrix, asked)
    for _ in range(_CLASHES_MAX):
        if answer is None:
            return
        clash, python = answer
        yield clash, python
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


def _message(asked: Asked, wants: list[Want], python: str | None) -> str:
    texts = list(dict.fromkeys(asked.origins[want].text.partition(";")[0].strip() for want in wants))
    shown = f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
    together = " together" if len(texts) > 1 else ""
    return f"{shown} cannot be installed{together}{f' for Python {python}' if python else ''}"
