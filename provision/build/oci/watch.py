"""Show how the work goes: bars of bytes on a terminal, a line a finished part elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO


class Watch(Protocol):
    """Who is told how far each part is; called from several threads."""

    def begin(self, part: str, total_bytes: int | None) -> None:
        """Take a part that begins now."""

    def advance(self, part: str, count_bytes: int) -> None:
        """Take what was done of a part since the last word of it."""

    def end(self, part: str, outcome: str) -> None:
        """Take a part that is done."""


class Silent:
    """Tells nobody."""

    def begin(self, part: str, total_bytes: int | None) -> None:
        """Say nothing."""

    def advance(self, part: str, count_bytes: int) -> None:
        """Say nothing."""

    def end(self, part: str, outcome: str) -> None:
        """Say nothing."""


class _Lines(Silent):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}

    def begin(self, part: str, total_bytes: int | None) -> None:
        del total_bytes
        self._begun[part] = time.monotonic()

    def end(self, part: str, outcome: str) -> None:
        with self._lock:
            seconds = time.monotonic() - self._begun.get(part, time.monotonic())
            self._stream.write(f"build: {part}  {outcome}, {seconds:.1f} s\n")
            self._stream.flush()


@contextmanager
def show_watch(stream: TextIO, *, is_quiet: bool = False) -> Iterator[Watch]:
    """Yield somebody who shows the work to a person.

    Args:
        stream: Where people look, the standard error.
        is_quiet: Show nothing.
    """
    if is_quiet:
        yield Silent()
    elif not stream.isatty():
        yield _Lines(stream)
    else:
        with _bars(stream) as watch:
            yield watch


@contextmanager
def _bars(stream: TextIO) -> Iterator[Watch]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    console = Console(file=stream)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as display:

        class Bars:
            def __init__(self) -> None:
                self._tasks: dict[str, TaskID] = {}

            def begin(self, part: str, total_bytes: int | None) -> None:
                self._tasks[part] = display.add_task(part, total=total_bytes)

            def advance(self, part: str, count_bytes: int) -> None:
                display.advance(self._tasks[part], count_bytes)

            def end(self, part: str, outcome: str) -> None:
                task = self._tasks.pop(part, None)
                if task is not None:
                    display.remove_task(task)
                console.print(Text(f"{part}  {outcome}"), soft_wrap=True)

        yield Bars()
