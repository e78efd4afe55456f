"""What the command says that an install was read from, beyond the requirements it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from provision.audit.model import Command, Environment, Install
from provision.records import record
from provision.resolve.requirements import normalise_name

_MAKERS = ("venv", "virtualenv")
_AFRESH = ("--force-reinstall", "--ignore-installed", "-I", "--reinstall")
_UPGRADES = ("--upgrade", *_AFRESH)
_UPGRADES_OF_ONE = ("-P", "--upgrade-package", "--reinstall-package")


def command_of(environment: Environment, install: Install) -> Command | None:
    """Return the command that an install was read from, ``None`` in a file of requirements."""
    at = install.span
    for command in environment.commands:
        if command.span.file == at.file and command.span.start <= at.start and at.end <= command.span.end:
            return command
    return None


def is_caught(environment: Environment, command: Command, *, by: Sequence[str] = ("||", "|", "&", ";", "\n")) -> bool:
    """Tell whether something of the same list takes the failure of a command."""
    number = next(at for at, other in enumerate(environment.commands) if other is command)
    for later in environment.commands[number + 1 :]:
        if later.before != "&&":
            return later.before in by
    return False


@record
class Upgrade:
    """What an install replaces of that which is there and would do.

    Attributes:
        is_of_all: It looks at nothing that is there, so that it takes all that it needs anew.
        is_of_asked: It takes the newest of what it asks for.
        names: Packages of which it takes the newest because its flags name them.
    """

    is_of_all: bool
    is_of_asked: bool
    names: frozenset[str]


def upgrade_of(environment: Environment, install: Install) -> Upgrade:
    """Return what an install replaces: ``--upgrade``, its short forms, what counts as it.

    pip and uv take the newest release too where they are told to install over what is there, or not to look at it. uv
    leaves nothing of what is there where it is told to upgrade, pip all that is not asked for; uv can be told so of
    single packages (``-P torch``).
    """
    command = command_of(environment, install)
    words = [word.text or "" for word in command.words] if command is not None else []
    if "install" in words:
        # What stands before it is for the interpreter: `python -I -m pip install`.
        words = words[words.index("install") :]
    is_uv = install.installer == "uv"
    anew = {*_AFRESH, "eager", "--upgrade-strategy=eager", *(("-U", "--upgrade") if is_uv else ())}
    return Upgrade(
        is_of_all=not anew.isdisjoint(words),
        is_of_asked=any(text in _UPGRADES or re.fullmatch("-(?!P)[a-zA-Z]*U[a-zA-Z]*", text) for text in words),
        names=frozenset(_named_upgrades(words)) if is_uv else frozenset(),
    )


def is_upgrade(environment: Environment, install: Install, name: str) -> bool:
    """Tell whether an install replaces what is there of a package that it asks for."""
    upgrade = upgrade_of(environment, install)
    return upgrade.is_of_asked or name in upgrade.names


def is_brought_up(environment: Environment, install: Install, name: str) -> bool:
    """Tell whether a package was brought to its newest release by a command before an install."""
    for other in environment.installs:
        if other.span == install.span:
            return False
        is_open = any(item.name == name and not item.specifier for item in other.requirements)
        if is_open and other.is_certain and is_upgrade(environment, other, name):
            return True
    return False


def _named_upgrades(words: list[str]) -> Iterator[str]:
    """Yield the packages that uv is told to upgrade or install anew; versions may follow a name."""
    for text, following in pairwise([*words, ""]):
        flag, equals, value = text.partition("=")
        if flag not in _UPGRADES_OF_ONE:
            # Among short flags in one word it is the last, or nothing stands before what it names.
            if re.fullmatch("-[a-zA-Z]*P", text):
                value = following
            elif text.startswith("-P"):
                value = text.removeprefix("-P")
            else:
                continue
        elif not equals:
            value = following
        found = re.match("[A-Za-z0-9._-]+", value)
        if found is not None:
            yield normalise_name(found[0])


def is_removed(command: Command, name: str) -> bool:
    """Tell whether a command takes a package out, or may do so."""
    words = [word.text for word in command.words]
    return "uninstall" in words and any(text is None or normalise_name(text) == name for text in words)


def is_removed_after(environment: Environment, install: Install, name: str) -> bool:
    """Tell whether a command behind an install takes a package out, or may do so.

    What no command says, as in a file of requirements, is taken to come before every command.
    """
    for command in reversed(environment.commands):
        at = install.span
        if command.span.file == at.file and command.span.start <= at.start and at.end <= command.span.end:
            return False
        if is_removed(command, name):
            return True
    return False


def is_apart(environment: Environment) -> bool:
    """Tell whether packages go to a virtual environment, which has nothing of what its base brings.

    One that is made and not entered counts for nothing: its own pip is named by its path.
    """
    words = [[word.text or "" for word in command.words] for command in environment.commands]
    if any("--system-site-packages" in texts for texts in words):
        return False
    if "VIRTUAL_ENV" in environment.variables or any(text.endswith("/activate") for texts in words for text in texts):
        return True
    if any(pair == ("uv", "venv") for texts in words for pair in pairwise(texts)):
        return True
    path = environment.variables.get("PATH")
    is_made = any(
        texts[0].rpartition("/")[2] in _MAKERS or ("-m", name) in pairwise(texts)
        for texts in words
        if texts
        for name in _MAKERS
    )
    return is_made and path is not None
