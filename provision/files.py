"""Files that a person names on the command line, read once and judged at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from provision.errors import UsageError

__all__ = ["check_size", "open_stdin", "read_bytes", "read_text"]


def open_stdin(flag: str) -> BinaryIO:
    """Return the standard input as bytes.

    Args:
        flag: The flag that asks for it, for the message.

    Raises:
        UsageError: The program was started without one.
    """
    if sys.stdin is None:
        raise UsageError(
            f"{flag}: the standard input is closed", hints=("name a file, or send something into the program",)
        )
    return sys.stdin.buffer


def read_text(path: Path, flag: str, *, bytes_max: int) -> str:
    """Read a whole text file; ``-`` is the standard input.

    Args:
        path: The file.
        flag: The flag that named it, for the message.
        bytes_max: Largest size that makes sense.

    Raises:
        UsageError: The file is missing, unreadable, too large or no UTF-8.
    """
    content = read_bytes(path, flag, bytes_max)
    try:
        # What Windows writes at the beginning of a text is not part of it.
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{flag}: {path} is not UTF-8 text",
            because=(f"byte {error.start} is {content[error.start]:#04x}",),
            hints=("save it as UTF-8, and make sure that it is the file you mean",),
        ) from error


def read_bytes(path: Path, flag: str, bytes_max: int) -> bytes:
    """Read a whole file; ``-`` is the standard input.

    Raises:
        UsageError: The file is missing, unreadable or too large.
    """
    try:
        if str(path) == "-":
            content = open_stdin(flag).read(bytes_max + 1)
        else:
            with path.open("rb") as file:
                content = file.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read", because=(error.strerror or str(error),)) from error
    return check_size(content, path, flag, bytes_max)


def check_size(content: bytes, path: Path, flag: str, bytes_max: int) -> bytes:
    """Return what a file holds, if it is no larger than makes sense.

    Raises:
        UsageError: It is.
    """
    if len(content) > bytes_max:
        raise UsageError(
            f"{flag}: {path} is larger than {bytes_max // 1024} KiB", hints=("make sure that it is the file you mean",)
        )
    return content
