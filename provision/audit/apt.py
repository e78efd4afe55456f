"""What commands ask apt for, as long as it knows the archive of its release alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from provision.audit.bases import is_bare, is_cuda_repository, is_plain
from provision.audit.commands import is_caught
from provision.audit.model import Command, Environment
from provision.audit.wrappers import SHELLS, is_script, unwrap
from provision.matrix.load import Matrix

_APT = ("apt-get", "apt", "aptitude")
_BRINGERS = SHELLS | {"source", ".", "eval", "gpg"}
_ADDERS = ("add-apt-repository", "apt-add-repository")
_REPOSITORIES = (*_ADDERS, "extrepo", "dpkg")
_LISTS = ("sources.list", "/etc/apt", "/etc/yum", "archive.debian.org", "old-releases", "vault.centos.org")


def of_release(
    environment: Environment, programs: Sequence[str] = _APT, *, beside: str = ""
) -> Iterator[tuple[Command, str, list[str]]]:
    """Yield this stage's own calls of a package manager, until something may bring another archive.

    A call that may not run, or whose failure a later ``||`` takes, is left out.

    Args:
        environment: The stage.
        programs: Package managers.
        beside: Name of one archive that may be added; calls are then yielded from where it was.

    Yields:
        The command, the package manager that it runs, and the words behind that.
    """
    if may_bring_archive(environment):
        return
    is_added = not beside
    for number, command in enumerate(environment.commands):
        texts = [word.text or "" for word in command.words]
        texts = texts[unwrap(texts)[0] :]
        program = texts[0].rpartition("/")[2] if texts else ""
        if beside and program in _ADDERS and any(beside in text for text in texts):
            is_added = True
            continue
        if _brings_archive(program, texts):
            return
        is_run = command.instruction == "RUN" and command.is_certain
        if not is_added or number < environment.first_own or program not in programs:
            continue
        if is_run and not is_caught(environment, command):
            yield command, program, texts[1:]


def may_bring_archive(environment: Environment) -> bool:
    """Tell whether lists, keys or settings of apt may be among what is copied."""
    return any(
        destination is None or destination.rstrip("/") in ("", "/var") or destination.startswith("/etc")
        for _, destination in environment.copied
    )


def _brings_archive(program: str, texts: Sequence[str]) -> bool:
    if not program or is_script(texts[0]) or program in _BRINGERS or program in _REPOSITORIES:
        return True
    return any(
        text.endswith(".deb") or text.startswith(("deb ", "deb-src ")) or any(part in text for part in _LISTS)
        for text in texts
    )


def not_inside(matrix: Matrix, environment: Environment) -> tuple[str, ...]:
    """Return packages that the base surely does not have, and that bring others along; none for unknown bases."""
    base = environment.base
    if base is None or not is_bare(matrix, environment):
        return ()
    names = matrix.setting("audit_rules.toml", "apt_packages_not_inside").entries
    is_small = is_cuda_repository(matrix, base) or (is_plain(matrix, environment) and base.flavour != "full")
    return tuple(f"{names['any']} {names['small'] if is_small else ''}".split())


def packages_of(program: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the packages that a call is to install, without versions and releases; none for every other call."""
    if program not in _APT or "install" not in texts:
        return ()
    names = texts[texts.index("install") + 1 :]
    return tuple(re.split("[=/:]", text)[0] for text in names if not text.startswith("-"))
