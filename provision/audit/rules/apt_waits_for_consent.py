"""`apt-get install` that asks whether to go on, where nobody answers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.apt import may_bring_archive, not_inside, packages_of
from provision.audit.commands import is_caught
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wrappers import unwrap
from provision.matrix.load import Matrix

ID = "B19"

_YES = re.compile(r"-[a-zA-Z]*y[a-zA-Z]*|--yes|--assume-yes|--force-yes|-[a-zA-Z]*qq[a-zA-Z]*|-q=2")
_MARKS = ("assume-yes", "assumeyes", "apt.conf")
_DRY = ("-d", "-s", "--download-only", "--simulate", "--dry-run", "--print-uris", "-o", "-c", "--option")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for installs without consent of what surely brings further packages along."""
    foreign = not_inside(matrix, environment)
    if not foreign or may_bring_archive(environment):
        return
    installed: set[str] = set()
    own = {id(command) for command in environment.own_commands}
    for command in environment.commands:
        texts = [word.text or "?" for word in command.words]
        if any(mark in text.lower() for text in texts for mark in _MARKS):
            return
        texts = texts[unwrap(texts)[0] :]
        program = texts[0].rpartition("/")[2] if texts else ""
        names = packages_of(program, texts[1:])
        new = [name for name in names if name in foreign and name not in installed]
        installed.update(names)
        is_own = id(command) in own and command.instruction == "RUN" and command.is_certain
        if not new or not is_own or command.before == "|" or any(_YES.fullmatch(text) for text in texts):
            continue
        if any(text.partition("=")[0] in _DRY for text in texts) or is_caught(environment, command):
            continue
        yield found(
            matrix,
            ID,
            span=command.span,
            message=f"{program} asks whether to install what {new[0]} needs, and the build cannot answer",
            reasons=("it asks where it takes more packages than are named, and ends with `Abort.` without an answer",),
            hint=f"write `{program} install -y`",
        )
