"""Two distributions that put their files into one folder, such as onnxruntime beside onnxruntime-gpu."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options, Requirement
from provision.audit.presence import Walk, origin_at_end, walks_of
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.matrix.query import is_placeholder, same_files

ID = "C21"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for two that are asked for, and for one beside what another package brings."""
    asked: dict[tuple[str, str], Requirement] = {}
    for install, requirement in environment.requirements():
        is_sure = install.is_certain and not install.is_dry and requirement.applies is True
        if requirement.ecosystem != "pypi" or not is_sure:
            continue
        # That a name may be of a release without files is another rule's matter.
        if not is_placeholder(matrix, requirement.name, requirement.version):
            asked.setdefault((install.target, requirement.name), requirement)
    targets = dict.fromkeys(target for target, _ in asked)
    walks = walks_of(environment, matrix, options) if len(targets) == 1 else ()
    for target in targets:
        named = {name for other, name in asked if other == target}
        if walks and walks[0].is_whole:
            # What was taken out again is gone.
            named = {name for name in named if name in walks[0].end}
        there = [{name for name, item in walk.end.items() if _has_files(matrix, name, item.version)} for walk in walks]
        for names in same_files(matrix, named.union(set.intersection(*there)) if there else named):
            own = sorted((asked[target, name] for name in names if name in named), key=lambda item: item.span.start)
            if not own:
                continue
            shown = [*(name for name in names if name not in named), *(item.name for item in own)]
            yield found(
                matrix,
                ID,
                span=own[-1].span,
                message=f"{', '.join(shown[:-1])} and {shown[-1]} write the same files",
                reasons=(
                    *(_brought(matrix, walks[0], name) for name in names if name not in named),
                    "both put their files into one folder, and what is installed last is what is loaded",
                ),
            )


def _has_files(matrix: Matrix, name: str, version: str | None) -> bool:
    return version is not None and not is_placeholder(matrix, name, version)


def _brought(matrix: Matrix, walk: Walk, name: str) -> str:
    by, step = origin_at_end(matrix, walk, name), walk.end[name].step
    if by is not None:
        return f"`{by.text}` brings {name}"
    whose = f"`{walk.steps[step].asked.install.command}`" if step is not None else "the base"
    return f"{whose} brings {name}"
