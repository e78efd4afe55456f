"""pip that is told to install into a Python which belongs to the packages of the system."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from provision.audit.bases import is_cuda_repository, is_plain
from provision.audit.commands import command_of, is_apart, is_caught
from provision.audit.model import Command, Environment, Finding, Install, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "B13"

_ELSEWHERE = ("--target", "-t", "--prefix", "--root", "--dry-run", "--python")
_OTHER_PYTHONS = ("conda", "mamba", "pyenv", "venv", "virtualenv", "uv", "pipx", "poetry", "get-pip.py")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the first install of a stage by the system's own pip, where nothing lets it do so."""
    settings = matrix.settings("audit_rules.toml")
    base, system = environment.base, environment.os
    if base is None or system not in settings["externally_managed_systems"].values or base.repository == "python":
        return
    row = matrix.os_release(system)
    if not (is_plain(matrix, environment) or is_cuda_repository(matrix, base)):
        return
    if row is None or environment.python != row.python:
        return
    if _may_be_other(environment, settings["externally_managed_marks"].values):
        return
    for install in environment.own_installs:
        command = command_of(environment, install)
        if command is None or not _is_refused(environment, install, command):
            continue
        yield found(
            matrix,
            ID,
            span=command.words[0].span,
            message=f"{command.words[0].text} does not install into the Python of {row.name}",
            reasons=(
                f"{row.name} marks its Python {row.python} as externally managed, and pip ends with an error",
                "nothing before makes a virtual environment or tells pip to break system packages",
            ),
        )
        return


def _is_refused(environment: Environment, install: Install, command: Command) -> bool:
    """Tell whether a command is pip of the system, whose end nobody catches."""
    words = [word.text or "" for word in command.words]
    program = words[0].removeprefix("/usr/bin/")
    is_pip = program in ("pip", "pip3") or (program in ("python3", "python") and ("-m", "pip") in pairwise(words))
    if not is_pip or install.installer != "pip" or install.is_dry or not install.is_certain or install.target:
        return False
    if any(word.partition("=")[0] in _ELSEWHERE for word in words):
        return False
    return not is_caught(environment, command, by=("||",))


def _may_be_other(environment: Environment, marks: tuple[str, ...]) -> bool:
    """Tell whether something lets pip install all the same, or brings another Python."""
    if is_apart(environment) or "PATH" in environment.variables:
        return True
    if any(
        mark in f"{name}={item.value or ''}".lower() for name, item in environment.variables.items() for mark in marks
    ):
        return True
    for source, destination in environment.copied:
        places = f"{source or '/'} {destination or '/'}".lower()
        if source is None or destination is None or any(part in places for part in ("pip", "python", "venv", "conda")):
            return True
        if environment.copies_from and destination.rstrip("/") in ("", "/usr", "/usr/local", "/opt"):
            return True
    for command in environment.commands:
        for word in command.words:
            text = (word.text or "").lower()
            if any(mark in text for mark in marks) or text.rpartition("/")[2] in _OTHER_PYTHONS:
                return True
    return not any(word.text == "python3-pip" for command in environment.commands for word in command.words)
