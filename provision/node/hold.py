"""One run at a time over the same hosts, whatever it does to them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from provision.errors import MissingDependencyError
from provision.files import try_lock
from provision.probe.clean import clean_line

_HOLDER_BYTES_MAX = 4096


@contextmanager
def hold_hosts(folder: Path, hosts: Iterable[str], action: str) -> Iterator[None]:
    """Let no other process that names the same hosts change them meanwhile.

    The kernel gives the lock back when this process ends, however it ends: a file that was left blocks nobody.

    Args:
        folder: Where the lock is kept.
        hosts: The words that name the hosts. Other words for some of the same hosts are another lock.
        action: What is done to them, for the words of whoever comes second.

    Raises:
        MissingDependencyError: Another process is at work on them.
        OSError: The folder cannot be written to, or its file system knows no locks.
    """
    key = hashlib.sha256(json.dumps(list(hosts)).encode()).hexdigest()[:16]
    path = folder / f"node-{key}.lock"
    descriptor = _take(path, action)
    try:
        yield
    finally:
        with suppress(OSError):
            # Before the lock is given back: whoever takes it next must find a file of its own.
            path.unlink()
        os.close(descriptor)
        with suppress(OSError):
            folder.rmdir()


def _take(path: Path, action: str) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            # The one that has just ended took the folder away.
            continue
        try:
            if not try_lock(descriptor):
                raise _busy(path, os.read(descriptor, _HOLDER_BYTES_MAX))
            if _is_there(path, descriptor):
                _sign(descriptor, action)
                return descriptor
        except (OSError, MissingDependencyError):
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_there(path: Path, descriptor: int) -> bool:
    """Tell whether the file that was locked still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int, action: str) -> None:
    import platform
    from datetime import UTC, datetime

    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    row = {"action": action, "pid": os.getpid(), "host": platform.node(), "since": since}
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(row).encode() + b"\n")


def _busy(path: Path, content: bytes) -> MissingDependencyError:
    running, holder = _name_holder(content)
    return MissingDependencyError(
        f"another {running} is at work on these hosts",
        because=(f"{holder} holds {path}",),
        hints=("let it end, or end it; `apply --resume` goes on with the hosts that a broken-off apply left",),
    )


def _name_holder(content: bytes) -> tuple[str, str]:
    """Return what is run and who runs it, as far as the file tells."""
    try:
        document = json.loads(content)
        running = f"`provision node {document['action']}`"
        holder = f"process {int(document['pid'])} on {document['host']}, since {document['since']},"
    except (ValueError, KeyError, TypeError):
        return "run", "another process"
    return clean_line(running, 80), clean_line(holder, 200)
