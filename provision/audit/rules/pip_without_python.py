"""pip in a base that has no Python."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import is_cuda_repository
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "B09"

_HARMLESS = {"apt", "apt-get", "cd", "chmod", "echo", "export", "groupadd", "ln", "mkdir", "rm", "set", "useradd"}
_NEEDS_PYTHON = ("pip", "python")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Walk the commands of the stages up to the first pip, and give up at the first that might bring a Python."""
    base = environment.base
    if base is None or environment.kind != "stage" or not is_cuda_repository(matrix, base) or environment.copies_from:
        return
    for command in environment.commands:
        program = command.program
        if program is None:
            return
        words = [word.text for word in command.words]
        if program.startswith(_NEEDS_PYTHON) and command.is_certain:
            yield found(
                matrix,
                ID,
                span=command.words[0].span,
                message=f"{program} is not there",
                reasons=(f"{base.repository}:{base.tag} holds no Python, and nothing before installs one",),
            )
            return
        if (
            program not in _HARMLESS
            or None in words
            or any("py" in str(word) or "conda" in str(word) for word in words)
        ):
            return
