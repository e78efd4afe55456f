"""What the command says that an install was read from, beyond the requirements it names."""

from __future__ import annotations

import re

from provision.audit.model import Command, Environment, Install
from provision.audit.requirement import normalise

__all__ = ["command_of", "is_removed", "is_upgrade"]


def command_of(environment: Environment, install: Install) -> Command | None:
    """Return the command that an install was read from, ``None`` in a file of requirements."""
    at = install.span
    for command in environment.commands:
        if command.span.file == at.file and command.span.start <= at.start and at.end <= command.span.end:
            return command
    return None


def is_upgrade(environment: Environment, install: Install) -> bool:
    """Tell whether an install replaces what is there already: ``--upgrade`` and its short forms."""
    command = command_of(environment, install)
    words = [word.text or "" for word in command.words] if command is not None else []
    return any(text == "--upgrade" or re.fullmatch("-[a-zA-Z]*U[a-zA-Z]*", text) for text in words)


def is_removed(command: Command, name: str) -> bool:
    """Tell whether a command takes a package out, or may do so."""
    words = [word.text for word in command.words]
    return "uninstall" in words and any(text is None or normalise(text) == name for text in words)
