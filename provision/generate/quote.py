"""Values in the files that are written here: each stays the one word, or the one line, that it is."""

from __future__ import annotations

import re
import shlex

from provision.errors import ProvisionError, UsageError


def quote_shell(value: object) -> str:
    """Quote a value as one word of a POSIX shell."""
    return shlex.quote(finalize(value))


def join_shell(*words: str) -> str:
    """Return words as a shell takes them, each quoted where it must be."""
    return " ".join(map(quote_shell, words))


def quote_dockerfile(value: object) -> str:
    """Quote a value as one double-quoted word of a Dockerfile's ENV or LABEL, variables not expanded."""
    text = finalize(value).replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{text}"'


def quote_variable(value: str) -> str:
    """Quote a variable's value for a Dockerfile's ENV or a shell, where it must be; ``${NAME}`` in it is expanded."""
    return value if re.fullmatch(r"[A-Za-z0-9_./:,-]+", finalize(value)) else f'"{value}"'


def finalize(value: object) -> str:
    """Return what is printed into a file as text; templates of sites call it for each of their values.

    Raises:
        UsageError: The text has a control character, such as a newline that would start a new instruction.
        ProvisionError: The value is nothing that can be printed: ``None``, a bool, a collection.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ProvisionError(f"{value!r} was printed into a file, and is not text")
    text = str(value)
    if not text.isprintable():
        raise UsageError(f"{text!r} has a control character", because=("it would start another line of the file",))
    return text
