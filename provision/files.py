"""Files: what a person names is read once and judged at once, what this program keeps is written whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from provision.errors import UsageError


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


def try_lock(descriptor: int) -> bool:
    """Take the kernel's lock of an open file or folder, and tell whether it was free; it ends when that is closed.

    Raises:
        OSError: The file system knows no locks.
    """
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a name beside a file; what is written there takes the file's place, unless the block fails.

    Raises:
        OSError: The file cannot be written.
    """
    from threading import get_ident

    draft = path.with_name(f".{path.name[:80]}.{os.getpid()}.{get_ident()}.tmp")
    try:
        yield draft
        draft.replace(path)
    finally:
        # A file system that takes no writes refuses this too, even where there is nothing to take away.
        with suppress(OSError):
            draft.unlink()


def write_whole(path: Path, content: bytes, *, mode: int = 0o666, is_synced: bool = False) -> None:
    """Write a file so that a reader sees the old one or the new one whole; make the folder where it is missing.

    Args:
        path: The file.
        content: All of it.
        mode: Permission bits, less what the umask takes away: 0o600 for what is nobody else's.
        is_synced: Whether it must outlast a machine that loses its power now.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as draft:
        draft.touch(mode)
        with draft.open("wb") as file:
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
