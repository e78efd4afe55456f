"""Logs that a person names on the command line."""

from __future__ import annotations

from pathlib import Path

from provision.errors import UsageError
from provision.files import check_size, read_bytes

_GZIP = b"\x1f\x8b"
_STRANGE_SHARE = 10
_SHORT = 200
"""Of fewer characters no share tells anything."""


def read_log(path: Path, flag: str, *, bytes_max: int) -> str:
    """Read a log as programs write it: gzip is unpacked, what is not UTF-8 is replaced, terminal escapes go.

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
            f"{flag}: {path} is not text",
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
    return check_size(unpacked, path, flag, bytes_max)
