"""The script that installs pip, run by a Python that it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from provision.audit.model import Command, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import admits, python_of
from provision.matrix.load import Matrix

ID = "B10"

_SCRIPT = "get-pip.py"
_PIP = "pip"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for a fetch of the newest script, and hold the Python that runs it against the newest pip."""
    pip = matrix.published(_PIP)
    newest = pip.release(pip.versions[0]) if pip is not None and pip.versions else None
    if newest is None or not newest.requires_python or not _is_newest(environment):
        return
    for command in environment.own_commands:
        python = _python(environment, command, options)
        if python is None or not command.is_certain or admits(newest.requires_python, f"{python}.99"):
            continue
        yield found(
            matrix,
            ID,
            span=command.span,
            message=f"{_SCRIPT} does not run on Python {python}",
            reasons=(
                f"it is for the Pythons of the newest pip, and pip {newest.version} needs {newest.requires_python}",
            ),
        )


def _is_newest(environment: Environment) -> bool:
    """Tell whether every copy of the script that is fetched is that for the newest Pythons: no version leads to it."""
    addresses = [text for text in _words(environment) if "://" in text and text.endswith(f"/{_SCRIPT}")]
    return bool(addresses) and not any(re.search(r"/[0-9.]+/", text.partition("://")[2]) for text in addresses)


def _words(environment: Environment) -> Iterator[str]:
    for word in environment.downloads:
        yield word.text or ""
    for command in environment.commands:
        yield from (word.text or "" for word in command.words)


def _python(environment: Environment, command: Command, options: Options) -> str | None:
    """Return the Python that a command runs the script with; nothing where it runs another one, or says its version."""
    texts = [word.text or "" for word in command.words]
    if len(texts) < 2 or texts[1].rpartition("/")[2] != _SCRIPT or any("pip" in text for text in texts[2:]):
        return None
    named = re.fullmatch(r"python(?:([0-9]+\.[0-9]+)|[0-9]*)", command.program or "")
    if named is None:
        return None
    return named[1] or python_of(environment, None, options)
