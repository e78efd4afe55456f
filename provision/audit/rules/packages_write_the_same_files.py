"""Two distributions that put their files into one folder, such as onnxruntime beside onnxruntime-gpu."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Options, Requirement
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.versions import parse

ID = "C21"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for two that are asked for, or for one that another package brings beside it."""
    asked: dict[tuple[str, str], Requirement] = {}
    for install, requirement in environment.requirements():
        is_sure = install.is_certain and not install.is_dry and requirement.applies is True
        if requirement.ecosystem == "pypi" and is_sure and not _is_placeholder(matrix, requirement):
            asked.setdefault((install.target, requirement.name), requirement)
    settings = matrix.settings("audit_rules.toml")
    for names in settings["same_files"].entries.values():
        for target in dict.fromkeys(target for target, _ in asked):
            there = [asked[target, name] for name in names.split() if (target, name) in asked]
            if len(there) > 1:
                there.sort(key=lambda item: item.span.start)
                yield _finding(matrix, there[-1], [item.name for item in there])
    for (target, name), requirement in asked.items():
        plain = settings["same_files_brought"].entries.get(name)
        if plain is not None and (target, plain) not in asked:
            command = next(_bringers(environment, matrix, options, plain), None)
            if command is not None:
                yield _finding(matrix, requirement, [plain, name], f"`{command}` brings {plain}")


def _is_placeholder(matrix: Matrix, requirement: Requirement) -> bool:
    """Tell whether a name may be of a release that holds no files, which is another rule's matter."""
    since = matrix.setting("audit_rules.toml", "placeholders_since").entries.get(requirement.name)
    return since is not None and (requirement.version is None or parse(requirement.version) >= parse(since))


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
