"""What commands ask apt for, as long as it knows the archive of its release alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provision.audit.model import Command, Environment

__all__ = ["catches", "of_release"]

_APT = ("apt-get", "apt", "aptitude")
_SHELLS = ("bash", "dash", "sh", "source", ".", "eval", "gpg")
_REPOSITORIES = ("add-apt-repository", "apt-add-repository", "extrepo", "dpkg")
_LISTS = ("sources.list", "/etc/apt", "/etc/yum", "archive.debian.org", "old-releases", "vault.centos.org")


def of_release(environment: Environment, programs: Sequence[str] = _APT) -> Iterator[tuple[Command, tuple[str, ...]]]:
    """Yield this stage's own calls of a package manager with their words, until something may bring another archive.

    A call that may not run, or whose failure a later ``||`` takes, is left out.
    """
    if environment.copies_from or any(
        destination is None or destination.rstrip("/") == "" or destination.startswith("/etc")
        for _, destination in environment.copied
    ):
        return
    first_own = len(environment.commands) - len(environment.own_commands)
    for number, command in enumerate(environment.commands):
        texts = tuple(word.text or "" for word in command.words)
        while texts[:1] == ("sudo",) or (texts and texts[0].startswith("-")):
            texts = texts[1:]
        program = texts[0].rpartition("/")[2] if texts else ""
        if _may_bring_archive(program, texts):
            return
        is_run = command.instruction == "RUN" and command.is_certain
        if number >= first_own and program in programs and is_run and not catches(environment.commands, number):
            yield command, texts[1:]


def catches(commands: Sequence[Command], number: int) -> bool:
    """Tell whether something of the same list takes the failure of a command."""
    for later in commands[number + 1 :]:
        if later.before == "&&":
            continue
        return later.before in ("||", "|", "&", ";", "\n")
    return False


def _may_bring_archive(program: str, texts: Sequence[str]) -> bool:
    is_script = program.endswith(".sh") or bool(texts and texts[0].startswith(("./", "../")))
    if not program or is_script or program in _SHELLS or program in _REPOSITORIES:
        return True
    return any(part in text for text in texts for part in _LISTS) or any(text.endswith(".deb") for text in texts)
