"""Where ansible-core's programs are, and the variables they run with."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from provision.errors import MissingDependencyError, install_command

CALLBACKS = Path(__file__).resolve().parent / "callback"
"""Folder of the callback plugin."""

_DEFAULT_CALLBACKS = "~/.ansible/plugins/callback:/usr/share/ansible/plugins/callback"
_ERROR = re.compile(r"^\s*(?:\[ERROR\]:|ERROR!|fatal:)\s*(.+)$")
_ORIGIN = re.compile(r"^Origin: (?!<)(.+:\d+(?::\d+)?)$")
_PARSING = re.compile(r"(?:YAML parsing failed|Failed to parse inventory): (.+)$")
_WAYS_OUT = (
    (
        re.compile(r"(?:Missing|Incorrect) sudo password|sudo: a password is required"),
        "`--become-password-file FILE` names a file with the password of sudo; a user that is root needs none",
    ),
    (
        re.compile(r"module interpreter '[^']*' was not found|No python interpreters found"),
        "`ansible_python_interpreter` in the inventory says where the Python of a node is",
    ),
)
"""What Ansible says of a node without saying what to do, and that."""
_WARNING = re.compile(r"^\s*\[WARNING\]:\s*(.+)$")


def find_program(name: str) -> str:
    """Return where one of ansible-core's programs is: beside this Python, then on PATH.

    Raises:
        MissingDependencyError: It is not installed.
    """
    from shutil import which

    beside = Path(sys.executable).with_name(name)
    found = str(beside) if os.access(beside, os.X_OK) else which(name)
    if not found:
        raise MissingDependencyError(
            f"`{name}` is not on this machine",
            because=("nodes are changed by ansible-core, which is not installed",),
            hints=(install_command("ansible"), "or any ansible-core on PATH"),
        )
    return found


def has_configuration(variables: Mapping[str, str]) -> bool:
    """Tell whether somebody has configured Ansible; what they chose is then left alone."""
    named = variables.get("ANSIBLE_CONFIG")
    places = [Path(named)] if named else []
    places += [Path("ansible.cfg"), Path("~/.ansible.cfg").expanduser(), Path("/etc/ansible/ansible.cfg")]
    return any(place.is_file() for place in places)


def make_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for Ansible: no colour, no prompts, our events, and an inventory that must be readable.

    Args:
        variables: Those of this process.
    """
    callbacks = variables.get("ANSIBLE_CALLBACK_PLUGINS", _DEFAULT_CALLBACKS)
    made = {
        **variables,
        "ANSIBLE_CALLBACK_PLUGINS": f"{CALLBACKS}:{callbacks}",
        "ANSIBLE_DEPRECATION_WARNINGS": variables.get("ANSIBLE_DEPRECATION_WARNINGS", "0"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_SHOW_TASK_PATH_ON_FAILURE": "0",
        # Ansible refuses any other encoding.
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }
    if not has_configuration(variables):
        # One round trip a task instead of four; sudo must not ask for a terminal, which it has not done for years.
        made.setdefault("ANSIBLE_PIPELINING", "1")
    return made


def errors_in(text: str) -> tuple[str, ...]:
    """Return what Ansible complains of: its errors, or its warnings where there is none, or its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    for pattern in (_ERROR, _WARNING):
        found = dict.fromkeys(match[1].strip().rstrip(".") for line in lines if (match := pattern.match(line)))
        if found:
            return tuple(found)
    return tuple(line.strip() for line in lines[-1:])


def find_way_out(message: str) -> str | None:
    """Return what to do about a message of Ansible's own that does not say it, if that is known."""
    return next((hint for pattern, hint in _WAYS_OUT if pattern.search(message)), None)


def origins_in(text: str) -> tuple[str, ...]:
    """Return why an inventory cannot be read, each reason with its line where Ansible names one, in order."""
    found: list[str] = []
    why = ""
    for line in text.splitlines():
        if match := _PARSING.search(line):
            why = match[1].strip().rstrip(".")
        elif (match := _ORIGIN.match(line)) and why:
            found.append(f"{match[1]}: {why}")
    return tuple(dict.fromkeys(found))
