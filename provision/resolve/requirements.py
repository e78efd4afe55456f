"""The lines of a requirements file, checked before anything else sees them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from provision.errors import UsageError, without_secrets
from provision.records import record

if TYPE_CHECKING:
    from packaging.markers import Marker

# Compiled when they are first used: a request without lines needs none of them.
_COMMENT = r"(?:^|\s+)#.*$"
_PATH = r"^(?:\.{0,2}/|\.|~|[A-Za-z]:\\|file:)|\.(?:whl|zip|tar\.gz|tgz|tar\.bz2|txt)$"
_ADDRESS = r"(?:git\+)?[a-z]+://\S+"
_EGG = r"[#&]egg=([A-Za-z0-9._-]+)(?:\[[^\]]*\])?"
_ARCHIVE = r"(?:\.git|\.whl|\.zip|\.tar\.gz|\.tgz|\.tar\.bz2)$"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NUMBER = r"[0-9]+(?:\.[0-9]+)*"
_BOUND = rf"(?:(?:<=|>=|<|>) *{_NUMBER}|~= *[0-9]+\.{_NUMBER}|[=!]= *{_NUMBER}(?:\.\*|\+[a-z0-9]+)?)"
_PLAIN = rf"({_NAME}) *(?:\[ *({_NAME}(?: *, *{_NAME})*) *\])? *({_BOUND}(?: *, *{_BOUND})*)?"
"""What most lines are: a name, extras, bounds that are numbers."""
_SHOWN = 80
_READABLE = "it would be readable in the image and its lock"
SECRETS_HINT = (
    "put the credentials into `~/.netrc` (`machine HOST login USER password PASSWORD`), into the address "
    "(`https://USER:PASSWORD@HOST/…`, or with `${NAME}`), or for an index called NAME into the variables "
    "`UV_INDEX_NAME_USERNAME` and `UV_INDEX_NAME_PASSWORD`"
)
"""Where a user name and a password are found."""


LOCAL = "file:///build/local/"
"""Where the build of an image finds wheels and archives of the machine that wrote the context."""

_LOCAL_NAME = r"[A-Za-z0-9][A-Za-z0-9._+!-]*"
_LOCAL_FILE = rf"{LOCAL}{_LOCAL_NAME}#sha256=[0-9a-f]{{64}}"


@record
class UserRequirement:
    """One requirement a user wrote.

    Attributes:
        name: Normalised name of the distribution (``torch-geometric``); for an address without one, what its last part
            suggests.
        specifier: Versions that will do (``>=2.3,<3``), empty for any.
        text: The requirement without its comment, as it is written into a file.
        line: Number of the line, from 1.
    """

    name: str
    specifier: str
    text: str
    line: int

    @property
    def is_named(self) -> bool:
        """Whether the line itself says what the distribution is called."""
        return re.match(_ADDRESS, self.text) is None


@record
class Line:
    """A requirement taken apart.

    Attributes:
        name: As written.
        extras: Sorted.
        specifier: Versions that will do (``<3,>=2.3``), its clauses sorted; empty for any.
        url: The address that it names.
        marker: Where it counts; everywhere, unless there is one.
    """

    name: str
    extras: tuple[str, ...] = ()
    specifier: str = ""
    url: str | None = None
    marker: Marker | None = None

    def holds(self, python: str, machine: str) -> bool:
        """Tell whether the line counts on a Python (``3.11``) of a machine (``x86_64``)."""
        return self.marker is None or self.marker.evaluate(place_of(python, machine))


@lru_cache(maxsize=64)
def normalise_name(name: str) -> str:
    """Return a distribution's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirements(text: str, source: str) -> tuple[UserRequirement, ...]:
    """Read lines that hold one requirement each, as a request has them.

    Allowed are PEP 508 requirements (with extras, markers, https and git+https addresses), such addresses alone,
    comments and blank lines. What else a requirements file may hold is for whoever reads files.

    Args:
        text: The lines.
        source: What to call them in a message.

    Returns:
        The requirements in order.

    Raises:
        UsageError: A line is none of these; the message says which.
    """
    found = []
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        line = re.sub(_COMMENT, "", raw.removesuffix("\r")).strip()
        if line:
            found.append(parse_line(line, f"{source}, line {number}", number))
    return tuple(found)


def parse_line(line: str, where: str, number: int = 1) -> UserRequirement:
    """Read one requirement.

    Args:
        line: It, without comment and options.
        where: What to call its place in a message.
        number: Number of the line, from 1.

    Raises:
        UsageError: It is none that a request can hold.
    """
    shown = repr(without_secrets(line)[:_SHOWN])
    if (reason := _why_refused(line)) is not None:
        raise UsageError(f"{where}: {reason[0]}: {shown}", hints=reason[1:])
    try:
        requirement = requirement_of(line)
    except ValueError as error:
        because = without_secrets(str(error).splitlines()[0])
        raise UsageError(
            f"{where}: {shown} is not a requirement",
            because=(because,),
            hints=("write it as `name==version` or as another requirement of PEP 508",),
        ) from error
    if requirement.url is not None:
        _check_address(requirement.url, shown, where)
    return UserRequirement(
        name=normalise_name(requirement.name), specifier=requirement.specifier, text=line, line=number
    )


@lru_cache(maxsize=32768)
def requirement_of(line: str) -> Line:
    """Return a requirement taken apart; an address alone gets the name that its last part suggests.

    Raises:
        ValueError: It is none.
    """
    if plain := re.fullmatch(_PLAIN, line):
        _, extras, bounds = (text.replace(" ", "") for text in plain.groups(""))
        return Line(
            name=plain[1],
            extras=tuple(sorted(set(extras.split(",")) - {""})),
            specifier=",".join(sorted(set(bounds.split(",")))),
        )
    # packaging.requirements costs a command more than the rest of its start-up; only other lines need it.
    from packaging.requirements import Requirement

    found = Requirement(f"{_suggested_name(line.split()[0])} @ {line}" if re.match(_ADDRESS, line) else line)
    return Line(
        name=found.name,
        extras=tuple(sorted(found.extras)),
        specifier=str(found.specifier),
        url=found.url,
        marker=found.marker,
    )


def _suggested_name(address: str) -> str:
    if egg := re.search(_EGG, address):
        return egg[1]
    parts = [part for part in address.partition("://")[2].partition("#")[0].rstrip("/").split("/") if part]
    # An archive of a repository is called after a branch; the repository comes two parts before it.
    last = parts[2] if "archive" in parts[3:] else parts[-1].partition("@")[0] if parts else ""
    name = re.sub(_ARCHIVE, "", last)
    name = name.partition("-")[0] if last.endswith(".whl") else name
    return name if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name) else "unnamed"


def _check_address(url: str, shown: str, where: str) -> None:
    scheme, _, rest = url.partition("://")
    if scheme == "git+ssh" and ":" not in rest.partition("/")[0].rpartition("@")[0]:
        return
    if scheme == "git+ssh" or url.startswith(("git+git@", "git@")):
        raise UsageError(
            f"{where}: a repository behind ssh is named without a password and with slashes alone: {shown}",
            hints=("write its address as `git+ssh://git@HOST/PATH`, or as `git+https://HOST/PATH`",),
        )
    if re.fullmatch(_LOCAL_FILE, url):
        return
    if scheme == "file":
        raise UsageError(
            f"{where}: the file is not there, and may lie on the machine that wrote the line: {shown}",
            hints=(
                "put the file there, or correct the path",
                "or write `name==version` in its place; `pip list --format=freeze` prints lines of that form",
            ),
        )
    if scheme not in ("https", "git+https"):
        raise UsageError(
            f"{where}: only https addresses are installed: {shown}",
            hints=("write the address with `https://` or `git+https://`",),
        )
    if "@" in rest.partition("/")[0]:
        raise UsageError(
            f"{where}: the address holds a user name or password", because=(_READABLE,), hints=(SECRETS_HINT,)
        )


def is_local_name(name: str) -> bool:
    """Tell whether a file of this machine has a name that lines can hold."""
    return re.fullmatch(_LOCAL_NAME, name) is not None


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


def _why_refused(line: str) -> tuple[str, ...] | None:
    """Return why a line cannot be asked for, and the way out."""
    if not line.isascii() or not line.isprintable():
        return ("a character other than printable ASCII", "retype the line; blanks copied from a page are often none")
    if line.startswith("-"):
        return ("an option, where a requirement is due", "write it into a requirements file and give that to `-r`")
    if any(mark in line for mark in ("$", "`", "{{", "}}")):
        return ("variables and templates are not expanded", "write the value itself")
    if "://" not in line and (re.search(_PATH, line) or " @ ." in line or " @ /" in line):
        return (
            "no such file or project is here",
            "correct the path; for a project of your own write `--project DIR` in place of it, "
            "for another one `name==version`",
        )
    return None


def is_wheel(line: UserRequirement) -> bool:
    """Tell whether a line takes a wheel from an address, of which nothing is left to be built."""
    return "@" in line.text and wheel_file(requirement_of(line.text)) is not None


def wheel_file(line: Line) -> str | None:
    """Return the name of the wheel that a line takes from an address, as written there."""
    address = re.split(r"[?#]", line.url)[0] if line.url is not None else ""
    return address.rpartition("/")[2] if address.endswith(".whl") else None


def exact_line(line: UserRequirement, version: str | None) -> str:
    """Return a line with one version in the place of its bounds; the extras that it names stay."""
    if version is None:
        return line.text
    words = re.match(r"\s*[A-Za-z0-9._-]+\s*(\[[^\]]*\])?", line.text)
    return f"{line.name}{(words and words[1]) or ''}=={version}"
