"""Files that a person names on the command line, read once and judged at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from provision.errors import UsageError

__all__ = ["open_stdin", "read_bytes", "read_log", "read_text"]

_GZIP = b"\x1f\x8b"
_STRANGE_SHARE = 10
_SHORT = 200
"""Of fewer characters no share tells anything."""


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
        # What Windows writes at the beginning of a text is no part of it.
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{flag}: {path} is no UTF-8 text",
            because=(f"byte {error.start} is {content[error.start]:#04x}",),
            hints=("save it as UTF-8, and make sure that it is the file you mean",),
        ) from error


def read_log(path: Path, flag: str, *, bytes_max: int) -> str:
    """Read a log as programs write it: gzip is unpacked, what is no UTF-8 is replaced, terminal escapes go.

    Args:
        path: The file; ``-`` is the standard input.
        flag: The flag that named it, for the message.
        bytes_max: Largest size that makes sense, unpacked.

    Raises:
        UsageError: The file is missing, unreadable, too large, damaged or no text.
    """
    from provision.probe.clean import clean

    content = read_bytes(path, flag, bytes_max)
    if content.startswith(_GZIP):
        content = _unpack(content, path, flag, bytes_max)
    text = content.decode("utf-8", errors="replace").removeprefix("\ufeff")
    strange = text.count("\ufffd") + text.count("\x00")
    if strange * _STRANGE_SHARE > len(text) > _SHORT:
        raise UsageError(
            f"{flag}: {path} is no text",
            because=(f"{strange} of its {len(text)} characters cannot be read",),
            hints=("make sure that it is the file you mean; gzip is unpacked, other archives are not",),
        )
    # A bar that a program draws anew goes back to the line's beginning: each state of it is a line.
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))


def _unpack(content: bytes, path: Path, flag: str, bytes_max: int) -> bytes:
    import gzip
    import io
    import zlib

    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(bytes_max + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(
            f"{flag}: {path} is a damaged gzip file", because=(str(error),), hints=("fetch it once more",)
        ) from error
    return _check_size(unpacked, path, flag, bytes_max)


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
    return _check_size(content, path, flag, bytes_max)


def _check_size(content: bytes, path: Path, flag: str, bytes_max: int) -> bytes:
    if len(content) > bytes_max:
        raise UsageError(
            f"{flag}: {path} is larger than {bytes_max // 1024} KiB", hints=("make sure that it is the file you mean",)
        )
    return content
