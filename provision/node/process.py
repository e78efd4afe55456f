"""Run ansible-playbook: no shell, both of its streams read while it works, and nothing of it left when it ends.

Ansible's workers make sessions of their own, so ending a process group is not enough: whatever descends from the
process is looked up before it is told to end.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from provision.errors import MissingDependencyError

EVENTS_VARIABLE = "PROVISION_NODE_EVENTS"
"""Names the descriptor that the callback plugin writes to."""

_LINE_BYTES_MAX = 4 * 1024 * 1024
_TICK_SECONDS = 0.25
_INTERRUPT_SECONDS = 10.0
_TERMINATE_SECONDS = 3.0
_PROC = Path("/proc")


def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path | None = None,
    on_event: Callable[[str], None],
    on_line: Callable[[str], None],
    on_tick: Callable[[], None] = lambda: None,
) -> int:
    """Run a program and hand over its lines while it works.

    Args:
        argv: The program and its arguments.
        environment: All of its variables; the one that names the descriptor of events is added.
        folder: Where it runs; here unless given.
        on_event: Takes each line of events.
        on_line: Takes each line that it prints.
        on_tick: Called several times a second.

    Returns:
        Its exit status, negative where a signal ended it.

    Raises:
        MissingDependencyError: It cannot be started.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**environment, EVENTS_VARIABLE: str(writing)},
            pass_fds=(writing,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(reading)
        raise MissingDependencyError(
            f"`{argv[0]}` cannot be started", because=(error.strerror or str(error),)
        ) from error
    finally:
        os.close(writing)
    try:
        with selectors.DefaultSelector() as selector:
            events, lines = _Lines(on_event), _Lines(on_line)
            selector.register(reading, selectors.EVENT_READ, events)
            if process.stdout is not None:
                selector.register(process.stdout, selectors.EVENT_READ, lines)
            _follow(process, selector, on_tick)
            events.end()
            lines.end()
    finally:
        _end(process)
        os.close(reading)
        if process.stdout is not None:
            process.stdout.close()
    return process.returncode


def _follow(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, on_tick: Callable[[], None]) -> None:
    """Read until both streams are closed, or the process has ended and what it left was read."""
    while selector.get_map():
        # A child that lives on may hold the streams, so an ended process is not waited for twice.
        is_over = process.poll() is not None
        ready = selector.select(0 if is_over else _TICK_SECONDS)
        for key, _ in ready:
            content = os.read(key.fd, 65536)
            if content:
                key.data.take(content)
            else:
                selector.unregister(key.fileobj)
        if is_over and not ready:
            return
        on_tick()
    while process.poll() is None:
        # It closed its streams and works on.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TICK_SECONDS)
        on_tick()


class _Lines:
    """Bytes in, whole lines out; a line without an end does not fill the memory."""

    def __init__(self, give: Callable[[str], None]) -> None:
        self._give = give
        self._rest = b""

    def take(self, content: bytes) -> None:
        """Add bytes and give the lines they complete."""
        *whole, self._rest = (self._rest + content).split(b"\n")
        for line in whole:
            self._give(line.decode("utf-8", "replace"))
        if len(self._rest) > _LINE_BYTES_MAX:
            self._rest = self._rest[-_LINE_BYTES_MAX // 2 :]

    def end(self) -> None:
        """Give what stands behind the last line end."""
        if self._rest:
            self._give(self._rest.decode("utf-8", "replace"))
            self._rest = b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that descends from it; Ansible is asked first, so that it can tidy up."""
    if process.poll() is not None:
        return
    children: dict[int, str] = {}
    try:
        for number, seconds in ((signal.SIGINT, _INTERRUPT_SECONDS), (signal.SIGTERM, _TERMINATE_SECONDS)):
            children |= _descendants(process.pid)
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
    finally:
        # Also where a person pressed Ctrl-C once more.
        children |= _descendants(process.pid)
        process.kill()
        process.wait()
        _end_children(children)


def _end_children(children: Mapping[int, str]) -> None:
    """Tell what is left to end, and kill what does not; a number that another program has by now is left alone."""
    until = time.monotonic() + _TERMINATE_SECONDS
    number = signal.SIGTERM
    while left := [pid for pid, started in children.items() if _started(pid) == started]:
        if time.monotonic() > until:
            number = signal.SIGKILL
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if number == signal.SIGKILL:
            return
        time.sleep(0.05)


def _descendants(pid: int) -> dict[int, str]:
    """Return number → start time of all that descends from a process, as far as this system tells."""
    rows = {int(path.name): _stat(int(path.name)) for path in _PROC.glob("[0-9]*") if path.name.isdecimal()}
    found: dict[int, str] = {}
    parents = {pid}
    while parents:
        parents = {child for child, row in rows.items() if row is not None and row[0] in parents and child not in found}
        found |= {child: row[1] for child in parents if (row := rows[child]) is not None}
    return found


def _started(pid: int) -> str | None:
    row = _stat(pid)
    return None if row is None else row[1]


def _stat(pid: int) -> tuple[int, str] | None:
    """Return the parent and the start time of a process that has not ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if len(fields) < 20 or fields[0] in "ZX" else (int(fields[1]), fields[19])
