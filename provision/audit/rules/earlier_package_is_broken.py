"""A later command that puts a release in place which a package from an earlier one does not go with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Install, Options, Requirement
from provision.audit.presence import Walk, origin_of, whole_walks_of
from provision.audit.rules import spans_of
from provision.audit.verdict import found
from provision.audit.wanted import admits
from provision.matrix.load import Matrix
from provision.records import record

ID = "C22"

_CLOSER = ("C03", "C08", "C09", "C10", "C11", "C12", "N01", "N02", "N03", "N05")
"""Rules that say of some of these what they mean."""
_BASE = -1


@record
class _Broken:
    """A package that a later command leaves without what it needs."""

    name: str
    version: str
    install: Install | None
    need: str
    other: str
    taken: str
    by: Requirement


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold what is there at the end against what it needs; one finding for each requirement that breaks something."""
    walks = whole_walks_of(environment, matrix, options)
    broken = [list(_broken(matrix, walk)) for walk in walks]
    everywhere = [item for item in broken[0] if all(_is_in(item, others) for others in broken[1:])] if broken else []
    closer = set(spans_of(_CLOSER, environment, matrix, options)) if everywhere else set()
    seen = set()
    for item in everywhere:
        if item.by.span in closer or item.by.span in seen:
            continue
        seen.add(item.by.span)
        whose = f"`{item.install.command}` before installed" if item.install is not None else "the base comes with"
        yield found(
            matrix,
            ID,
            span=item.by.span,
            message=f"{item.by.text} breaks {item.name} {item.version}",
            reasons=(
                f"{whose} {item.name} {item.version}, which needs {item.need}",
                *_because(matrix, item),
                "an installer puts the other release there, and warns at most",
            ),
        )


def _broken(matrix: Matrix, walk: Walk) -> Iterator[_Broken]:
    from provision.resolve.published import Problem, need_asks

    problem = Problem(wants=(), python=walk.python, machine=walk.steps[0].asked.problem.machine)
    for name, present in walk.end.items():
        before = _BASE if present.step is None else present.step
        install = walk.steps[before].asked.install if present.step is not None else None
        if present.version is None or (install is not None and install.installer == "conda"):
            continue
        for need in need_asks(matrix, name, present.version, problem):
            other = walk.end.get(need.name)
            if other is None or other.version is None or other.step is None or other.step <= before:
                continue
            step = walk.steps[other.step]
            by = None if admits(need.specifier, other.version) else origin_of(matrix, step, need.name)
            if by is not None:
                yield _Broken(
                    name=name,
                    version=present.version,
                    install=install,
                    need=need.text,
                    other=need.name,
                    taken=other.version,
                    by=by,
                )


def _is_in(item: _Broken, others: Iterable[_Broken]) -> bool:
    return any((item.name, item.other, item.by) == (other.name, other.other, other.by) for other in others)


def _because(matrix: Matrix, item: _Broken) -> Iterator[str]:
    if item.by.name != item.other:
        yield f"as of {matrix.dated} this brings {item.other} {item.taken}"
    elif item.by.version is None:
        yield f"as of {matrix.dated} this takes {item.other} {item.taken}"
