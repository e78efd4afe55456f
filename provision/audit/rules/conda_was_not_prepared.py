"""`conda activate` in a shell that never read what conda puts into one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from provision.audit.bases import is_bare
from provision.audit.commands import is_caught
from provision.audit.model import WARN, Command, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wrappers import is_script
from provision.matrix.load import Matrix

ID = "B16"

_CONDA = ("conda", "mamba")
_READERS = ("source", ".", "eval")
_STARTED = re.compile(r"\s-(?:-login|-interactive|-rcfile|-init-file|[a-z]*[li])|\bsu\b|runuser")
"""What makes a shell read the files of a user."""


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the first activation that conda itself answers, with an error, since no function of the shell does."""
    if environment.kind != "stage" or "BASH_ENV" in environment.variables:
        return
    for command in environment.own_commands:
        texts = [word.text or "" for word in command.words]
        if command.program not in _CONDA or texts[1:2] != ["activate"] or command.instruction != "RUN":
            continue
        if not command.is_certain or is_caught(environment, command, by=("||",)):
            continue
        # By its path it is no function of any shell.
        is_path = "/" in texts[0]
        is_started = not command.shell or _STARTED.search(command.shell) is not None
        if not is_path and (is_started or _is_prepared(environment.own_commands, command)):
            continue
        yield found(
            matrix,
            ID,
            span=command.span,
            message=f"`{command.program} activate` ends with an error in a shell that was not prepared",
            reasons=(
                "the program itself is called by its path"
                if is_path
                else f"`{command.shell.partition(' ')[0]}` reads no file of a user here, where `conda init` writes",
                "the program cannot change the shell: it says to run `conda init` first",
            ),
            # Of a base that nobody knows the shell may be another one.
            severity="" if is_path or is_bare(matrix, environment) else WARN,
        )
        return


def _is_prepared(commands: Sequence[Command], activation: Command) -> bool:
    """Tell whether something of the same RUN may have read what conda puts into a shell."""
    for command in commands:
        if command is activation:
            return False
        if command.instruction_span != activation.instruction_span:
            continue
        first = command.words[0].text if command.words else None
        if command.program in _READERS or first is None or is_script(first):
            return True
    return False
