"""Run one program: no shell, a time limit that its children cannot outlive, an output that cannot fill the memory."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from provision.errors import MissingDependencyError
from provision.probe.clean import clean
from provision.probe.redact import redact
from provision.probe.transports import Finished, Limits, UnreachableError

_STDERR_BYTES = 8 * 1024
_GRACE_SECONDS = 1.0
_CLEAN_UP_SECONDS = 3.0


async def run_process(
    argv: Sequence[str], stdin: bytes | None, limits: Limits, *, hints: tuple[str, ...] = ()
) -> Finished:
    """Run a program in a process group of its own and return how it ended.

    Args:
        argv: The program and its arguments.
        stdin: What it reads; absent for nothing at all.
        limits: Time and bytes; the group is told to end when either is used up, and killed where it does not.
        hints: What to tell a person who does not have the program.

    Raises:
        MissingDependencyError: The program is not on this machine.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, watch = await loop.subprocess_exec(
            lambda: _Watch(limits.bytes_max),
            *argv,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise MissingDependencyError(f"`{argv[0]}` is not on this machine", hints=hints) from error
    except OSError as error:
        raise MissingDependencyError(
            f"`{argv[0]}` cannot be started", because=(error.strerror or str(error),), hints=hints
        ) from error
    is_late = False
    try:
        pipe = transport.get_pipe_transport(0)
        if stdin is not None and isinstance(pipe, asyncio.WriteTransport):
            pipe.write(stdin)
            pipe.close()
        is_late = not await _happens(limits.seconds, watch.exited, watch.overflow)
        if not watch.exited.is_set():
            await _end(transport, watch)
        # A child that lives on in another group may hold the pipes; what it would say is not waited for.
        await _happens(_GRACE_SECONDS, watch.silent)
    finally:
        if not watch.exited.is_set():
            # Cancelled: the loop must not end before it has seen the child end.
            await _end(transport, watch)
        transport.close()
    code = transport.get_returncode()
    said = redact(clean(watch.err.decode("utf-8", "replace")))
    return Finished(
        code=-signal.SIGKILL if code is None else code,
        out=bytes(watch.out),
        err=said,
        is_late=is_late,
        is_cut=watch.overflow.is_set(),
    )


def stream_of(finished: Finished, limits: Limits, *, missing: str = "") -> bytes:
    """Return what a transport brought back, in part too.

    Args:
        finished: How the program ended.
        limits: The limits it ran under.
        missing: What to say where nothing came and the program said nothing either.

    Raises:
        UnreachableError: Nothing came.
    """
    if finished.out:
        return finished.out
    if finished.is_late:
        raise UnreachableError(f"it did not answer within {limits.seconds:g} s")
    said = last_line(finished.err)
    if said:
        raise UnreachableError(said)
    raise UnreachableError(missing or f"it answered nothing and ended with {finished.code}")


def last_line(text: str) -> str:
    """Return the last line that says something, fit for a message."""
    line = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return line if len(line) <= 300 else line[:299] + "…"


class _Watch(asyncio.SubprocessProtocol):
    """What a program prints and when it ends; unlike asyncio's own, the end does not wait for who holds the pipes."""

    def __init__(self, bytes_max: int) -> None:
        self.out = bytearray()
        self.err = bytearray()
        self.exited = asyncio.Event()
        self.overflow = asyncio.Event()
        self.silent = asyncio.Event()
        self._bytes_max = bytes_max
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the beginning of the output and the end of the errors."""
        if fd == 2:
            self.err += data
            del self.err[: max(0, len(self.err) - _STDERR_BYTES)]
            return
        self.out += data
        if len(self.out) > self._bytes_max:
            del self.out[self._bytes_max :]
            self.overflow.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that a pipe was closed; that a program does not read all of its input is no fault."""
        del exc
        self._open.discard(fd)
        if not self._open:
            self.silent.set()

    def process_exited(self) -> None:
        """Note that the program has ended."""
        self.exited.set()


async def _happens(seconds: float, *events: asyncio.Event) -> bool:
    """Wait until one of the events happens and tell whether it did in time."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return bool(done)


async def _end(transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
    """End the whole group; the program itself is its leader.

    It is asked first, so that it can take away what it has made, and what it started in groups of their own.
    """
    try:
        _signal(transport, signal.SIGTERM)
        await _happens(_CLEAN_UP_SECONDS, watch.exited)
    finally:
        _signal(transport, signal.SIGKILL)
    await _happens(_GRACE_SECONDS, watch.exited)


def _signal(transport: asyncio.SubprocessTransport, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), number)
