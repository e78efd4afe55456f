"""The lines of a requirements file, checked before anything else sees them."""

from __future__ import annotations

import re

from provision.errors import UsageError
from provision.records import record

__all__ = ["UserRequirement", "parse_requirements", "place_of"]

_COMMENT = re.compile(r"(?:^|\s+)#.*$")
_PATH = re.compile(r"^(?:\.{0,2}/|~|[A-Za-z]:\\|file:)|\.(?:whl|zip|tar\.gz|tar\.bz2|txt)$")


@record
class UserRequirement:
    """One requirement a user wrote.

    Attributes:
        name: Normalised name of the distribution (``torch-geometric``).
        specifier: Versions that will do (``>=2.3,<3``), empty for any.
        text: The requirement without its comment, as it is written into a file.
        line: Number of the line, from 1.
    """

    name: str
    specifier: str
    text: str
    line: int


def parse_requirements(text: str, source: str) -> tuple[UserRequirement, ...]:
    """Read the lines of a requirements file.

    Allowed are PEP 508 requirements (with extras, markers and https addresses), comments and blank lines. Options,
    editable and local installs are refused: they would reach around the lock.

    Args:
        text: The whole file.
        source: What to call it in a message.

    Returns:
        The requirements in the order of the file.

    Raises:
        UsageError: A line is none of these; the message says which.
    """
    # packaging.requirements costs a command more than the rest of its start-up; only -r needs it.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    found = []
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        line = _COMMENT.sub("", raw.removesuffix("\r")).strip()
        if not line:
            continue
        where = f"{source}, line {number}"
        if reason := _why_refused(line):
            raise UsageError(f"{where}: {reason}: {line[:80]!r}")
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            because = str(error).splitlines()[0]
            raise UsageError(f"{where}: {line[:80]!r} is no requirement", because=(because,)) from error
        if requirement.url is not None and not requirement.url.startswith("https://"):
            raise UsageError(f"{where}: only https addresses are installed: {line[:80]!r}")
        if requirement.url is not None and "@" in requirement.url.split("/")[2]:
            raise UsageError(
                f"{where}: the address holds a user name or password",
                because=("it would be readable in the image and its lock",),
                hints=("let a proxy on the build host add the credentials",),
            )
        found.append(
            UserRequirement(
                name=canonicalize_name(requirement.name),
                specifier=str(requirement.specifier),
                text=line,
                line=number,
            )
        )
    return tuple(found)


def place_of(python: str, machine: str) -> dict[str, str]:
    """Return what markers are evaluated in.

    Args:
        python: ``3.11`` or ``3.13t``; its newest patch is meant, which is what images hold.
        machine: ``x86_64`` or ``aarch64``.
    """
    return {
        "python_version": python.rstrip("t"),
        "python_full_version": f"{python.rstrip('t')}.99",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "extra": "",
    }


def _why_refused(line: str) -> str | None:
    if not line.isascii() or not line.isprintable():
        return "a character other than printable ASCII"
    if line.startswith(("-e", "--editable")):
        return "an editable install has no place in an image that others build"
    if line.startswith("-"):
        return "options are not taken from a requirements file"
    if line.endswith("\\"):
        return "a requirement must be on one line"
    if " --" in line:
        return "options are not taken from a requirements file"
    if any(mark in line for mark in ("$", "`", "{{", "}}")):
        return "variables and templates are not expanded"
    if _PATH.search(line) and "@" not in line:
        return "a path cannot be installed: the file is not part of the build"
    return None
