"""The error tree, the exit codes and the hints that travel with an error.

::

    ProvisionError                 1  our own bug, when raised as such
    ├── UsageError                 2  wrong flag, malformed input
    ├── IncompatibleError          3  the facts prove that the request cannot be met
    ├── UnknownError               4  the facts say nothing about the request
    ├── ActionFailedError          5  a build, an apply or a write failed
    ├── VerificationFailedError    6  built or installed, but wrong
    ├── MissingDependencyError     7  an engine, a GPU, a tool, the network is absent
    ├── DriftError                 8  ``--check`` or ``--locked`` would change something
    └── DataError                  9  the compatibility data itself is broken

Errors carry data and print nothing; ``provision.cli.main`` words them for a terminal or as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

EXIT_INTERRUPTED = 130
_DISTRIBUTION = "gpu-provision"
USERINFO = r"(?<=://)(?:[^/?#\s]*@|[^/?#\s:@\[]*:(?!\d*(?:[^\w@]|$))(?:\S*@|[^@\n]*@))"
"""User and password of an address, up to the last ``@`` before its path.

Where a password has a sign that ends it before its ``@`` (``/``), what stands in the port's place is not a number.
"""


def without_secrets(text: str) -> str:
    """Return a text, an address or a sentence, whose addresses name no user and no password."""
    return re.sub(USERINFO, "", text)


def shown(text: str, characters_max: int = 80) -> str:
    """Return what was typed or read, fit for one line of a message: short, printable, escaped."""
    plain = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return plain if len(plain) <= characters_max else plain[: characters_max - 3] + "..."


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first of some names, joined by commas, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def install_command(extra: str = "") -> str:
    """Return the command that adds what is missing to the very Python that runs this program, in backticks.

    It names the interpreter, since the ``pip`` on PATH is often another's, and the one that is there of pip and uv.
    Where this program is run from a checkout that nobody has installed, it names the checkout: a registry may hold
    something else under the distribution's name.

    Args:
        extra: A group of optional dependencies of ``pyproject.toml``; what the program always needs, unless given.
    """
    import shlex
    import sys
    from importlib.metadata import PackageNotFoundError, distribution
    from importlib.util import find_spec
    from pathlib import Path

    try:
        distribution(_DISTRIBUTION)
        wanted = _DISTRIBUTION
    except PackageNotFoundError:
        wanted = str(Path(__file__).resolve().parents[1])
    if extra:
        wanted += f"[{extra}]"
    python = sys.executable or "python3"
    words = [python, "-m", "pip", "install"] if find_spec("pip") else ["uv", "pip", "install", "--python", python]
    return f"`{shlex.join([*words, wanted])}`"


class ProvisionError(Exception):
    """Anything this program refuses or fails to do, with the way out.

    Args:
        message: What happened, one sentence without a full stop.
        because: The chain of reasons, most general first, one sentence each.
        hints: What to do next, one sentence or one exact command each.
        details: More keys of the JSON document, for errors that programs act on.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        because: tuple[str, ...] | list[str] = (),
        hints: tuple[str, ...] | list[str] = (),
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.because = tuple(because)
        self.hints = tuple(hints)
        self.details = dict(details or {})

    def at(self, where: str) -> Self:
        """Return the same error, named by the place of what it is about (``stacks.toml: [[stack]] 2``)."""
        return type(self)(f"{where}: {self.message}", because=self.because, hints=self.hints, details=self.details)

    def to_json(self) -> dict[str, object]:
        """Return the ``error`` object of the JSON envelope."""
        document: dict[str, object] = {"code": self.code, "message": self.message}
        if self.because:
            document["because"] = list(self.because)
        if self.hints:
            document["hints"] = list(self.hints)
        return document | self.details


class UsageError(ProvisionError):
    """The command line or an input file is malformed."""

    exit_code = 2
    code = "usage"


class IncompatibleError(ProvisionError):
    """The facts prove that no stack satisfies the request."""

    exit_code = 3
    code = "incompatible"


class UnknownError(ProvisionError):
    """The facts neither allow nor exclude the request."""

    exit_code = 4
    code = "unknown"


class ActionFailedError(ProvisionError):
    """A build, an apply or a write was started and did not finish."""

    exit_code = 5
    code = "failed"


class VerificationFailedError(ProvisionError):
    """The thing exists but is not what its lock says."""

    exit_code = 6
    code = "verification"


class MissingDependencyError(ProvisionError):
    """Something outside this program is needed and absent."""

    exit_code = 7
    code = "missing"


class UnreachableError(MissingDependencyError):
    """A source did not answer, or not with what it should; it is said without passwords."""

    def __init__(
        self,
        message: str,
        *,
        because: tuple[str, ...] | list[str] = (),
        hints: tuple[str, ...] | list[str] = (),
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            without_secrets(message), because=[without_secrets(line) for line in because], hints=hints, details=details
        )


class DriftError(ProvisionError):
    """What is on disk differs from what would be written."""

    exit_code = 8
    code = "drift"


class DataError(ProvisionError):
    """A file under ``compat/`` is missing, malformed or contradicts another."""

    exit_code = 9
    code = "data"
