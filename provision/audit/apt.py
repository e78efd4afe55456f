"""What commands ask apt for, as long as it knows the archive of its release alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provision.audit.model import Command, Environment
from provision.audit.wrappers import SHELLS, is_script, unwrap

__all__ = ["of_release"]

_APT = ("apt-get", "apt", "aptitude")
_BRINGERS = SHELLS | {"source", ".", "eval", "gpg"}
_REPOSITORIES = ("add-apt-repository", "apt-add-repository", "extrepo", "dpkg")
_LISTS = ("sources.list", "/etc/apt", "/etc/yum", "archive.debian.org", "old-releases", "vault.centos.org")


def of_release(environment: Environment, programs: Sequence[str] = _APT) -> Iterator[tuple[Command, str, list[str]]]:
    """Yield this stage's own calls of a package manager, until something may bring another archive.

    A call that may not run, or whose failure a later ``||`` takes, is left out.

    Args:
        environment: The stage.
        programs: Package managers.

    Yields:
        The command, the package manager that it runs, and the words behind that.
    """
    if environment.copies_from or any(
        destination is None or destination.rstrip("/") == "" or destination.startswith("/etc")
        for _, destination in environment.copied
    ):
        return
    first_own = len(environment.commands) - len(environment.own_commands)
    for number, command in enumerate(environment.commands):
        texts = [word.text or "" for word in command.words]
        texts = texts[unwrap(texts)[0] :]
        program = texts[0].rpartition("/")[2] if texts else ""
        if _may_bring_archive(program, texts):
            return
        is_run = command.instruction == "RUN" and command.is_certain
        if number >= first_own and program in programs and is_run and not _is_caught(environment.commands, number):
            yield command, program, texts[1:]


def _is_caught(commands: Sequence[Command], number: int) -> bool:
    """Tell whether something of the same list takes the failure of a command."""
    for later in commands[number + 1 :]:
        if later.before == "&&":
            continue
        return later.before in ("||", "|", "&", ";", "\n")
    return False


def _may_bring_archive(program: str, texts: Sequence[str]) -> bool:
    if not program or is_script(texts[0]) or program in _BRINGERS or program in _REPOSITORIES:
        return True
    return any(part in text for text in texts for part in _LISTS) or any(text.endswith(".deb") for text in texts)
