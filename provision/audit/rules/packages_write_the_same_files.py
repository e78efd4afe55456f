"""Two distributions that put their files into one folder, such as onnxruntime beside onnxruntime-gpu."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Options, Requirement
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.matrix.query import is_placeholder, same_files

ID = "C21"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for two that are asked for, or for one that another package brings beside it."""
    asked: dict[tuple[str, str], Requirement] = {}
    for install, requirement in environment.requirements():
        is_sure = install.is_certain and not install.is_dry and requirement.applies is True
        if requirement.ecosystem != "pypi" or not is_sure:
            continue
        # That a name may be of a release without files is another rule's matter.
        if not is_placeholder(matrix, requirement.name, requirement.version):
            asked.setdefault((install.target, requirement.name), requirement)
    for target in dict.fromkeys(target for target, _ in asked):
        for names in same_files(matrix, {name for other, name in asked if other == target}):
            there = sorted((asked[target, name] for name in names), key=lambda item: item.span.start)
            yield _finding(matrix, there[-1], [item.name for item in there])
    brought = matrix.setting("audit_rules.toml", "same_files_brought").entries
    for (target, name), requirement in asked.items():
        plain = brought.get(name)
        if plain is not None and (target, plain) not in asked:
            command = next(_bringers(environment, matrix, options, plain), None)
            if command is not None:
                yield _finding(matrix, requirement, [plain, name], f"`{command}` brings {plain}")


def _finding(matrix: Matrix, requirement: Requirement, names: list[str], because: str = "") -> Finding:
    return found(
        matrix,
        ID,
        span=requirement.span,
        message=f"{', '.join(names[:-1])} and {names[-1]} write the same files",
        reasons=(
            *((because,) if because else ()),
            "both put their files into one folder, and what is installed last is what is loaded",
        ),
    )


def _bringers(environment: Environment, matrix: Matrix, options: Options, name: str) -> Iterator[str]:
    """Yield the commands that bring a distribution which nothing names, as far as that is known."""
    from provision.audit.solved import brings

    yield from (install.command for install, _ in brings(environment, matrix, options, name))
