"""A later install that brings a torch of its own."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.channels import PYTORCH, release_of
from provision.audit.companions import fact_ids
from provision.audit.model import ERROR, WARN, Environment, Finding, Options, Requirement, Span
from provision.audit.presence import Present, Step, Walk, origin_of, whole_walks_of
from provision.audit.rules import spans_of
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "C10"

_CLOSER = ("B08", "C03", "C11")
_TORCH = "torch"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for commands that move a torch which a pin or the base put there, on every Python that it may be."""
    walks = whole_walks_of(environment, matrix, options)
    closer: set[Span] | None = None
    for steps in zip(*(walk.steps for walk in walks), strict=True):
        moved = [_moved(matrix, walk, step) for walk, step in zip(walks, steps, strict=True)]
        if moved[0] is None or None in moved:
            continue
        before, by = moved[0]
        if closer is None:
            closer = set(spans_of(_CLOSER, environment, matrix, options, (ERROR, WARN)))
        if by.span in closer:
            continue
        own = walks[0].steps[before.step].asked.install if before.step is not None else None
        origin = f"`{own.command}` installed" if own is not None else "the base comes with"
        version = steps[0].after[by.name].version if by.name in steps[0].after else None
        yield found(
            matrix,
            ID,
            span=by.span,
            message=f"{by.text} replaces torch {before.version}",
            reasons=(f"{origin} torch {before.version}", f"as of {matrix.dated} {_because(matrix, steps[0], by)}"),
            facts=fact_ids(matrix, by.name, version) if version is not None else (),
        )


def _moved(matrix: Matrix, walk: Walk, step: Step) -> tuple[Present, Requirement] | None:
    """Return the torch that a command moves without naming it, and what comes to the other one."""
    before, after = step.before.get(_TORCH), step.after.get(_TORCH)
    if before is None or before.version is None or after is None or after.version in (None, before.version):
        return None
    asked = {item.name for item in step.asked.install.requirements}
    if _TORCH in asked or PYTORCH in asked or not _is_meant(walk, before):
        return None
    by = origin_of(matrix, step, _TORCH)
    return (before, by) if by is not None else None


def _is_meant(walk: Walk, present: Present) -> bool:
    """Tell whether somebody named this very torch: the base, a pin, or an index of its own."""
    if present.step is None:
        return True
    install = walk.steps[present.step].asked.install
    asked = [item for item in install.requirements if item.name in (_TORCH, PYTORCH)]
    return any(item.version is not None or release_of(item) for item in asked) or bool(asked and install.indexes)


def _because(matrix: Matrix, step: Step, by: Requirement) -> str:
    from provision.resolve.published import need_asks

    present, taken = step.after.get(by.name), step.after[_TORCH].version
    if present is None or present.version is None:
        return f"this brings torch {taken}"
    needs = need_asks(matrix, by.name, present.version, step.asked.problem, by.extras)
    text = next((f"which needs {need.text}" for need in needs if need.name == _TORCH), f"which brings torch {taken}")
    return f"this takes {by.name} {present.version}, {text}"
