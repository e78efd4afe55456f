"""`source` in a shell that has no such command."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import is_bare
from provision.audit.commands import is_caught
from provision.audit.model import Command, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wrappers import is_script
from provision.matrix.load import Matrix

ID = "B17"

_SH = ("/bin/sh", "sh", "/bin/dash", "dash")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the first `source` that dash runs, as long as nothing may have put another shell in its place."""
    system, base = matrix.os_release(environment.os), environment.base
    if base is None or not is_bare(matrix, environment) or (system is not None and system.package_format != "deb"):
        return
    if system is None and base.repository not in matrix.setting("audit_rules.toml", "bare_images").values:
        return
    for number, command in enumerate(environment.commands):
        if _may_change_shell(command):
            return
        if number < environment.first_own or command.program != "source" or command.instruction != "RUN":
            continue
        if not command.is_certain or command.shell.partition(" ")[0] not in _SH:
            continue
        if not is_caught(environment, command, by=("||",)):
            yield found(
                matrix,
                ID,
                span=command.words[0].span,
                message=f"/bin/sh of {base.repository}:{base.tag} has no `source`",
                reasons=(
                    "RUN is run by /bin/sh where no SHELL is set, and in images of Debian and Ubuntu that is dash",
                    "it ends with exit code 127, `source: not found`",
                ),
            )
            return


def _may_change_shell(command: Command) -> bool:
    """Tell whether a command may put another shell in the place of /bin/sh."""
    texts = [word.text for word in command.words]
    if None in texts[:1] or is_script(texts[0] or ""):
        return True
    return any((text or "").rstrip("/").endswith(("bin/sh", "dash")) for text in texts)
