"""Bars that show how far long work is, where a person looks."""

from __future__ import annotations

import os
import sys
from typing import Any

from provision.cli.output import Output


class Bar:
    """Bars on the standard error; nothing where that is not a terminal.

    As a context it gives what takes the name of the work, how much of it is done and how much there is, or nothing.

    Args:
        output: How much is said, and in which colours.
    """

    def __init__(self, output: Output) -> None:
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}
        if (
            output.verbosity >= 0
            and sys.stderr is not None
            and sys.stderr.isatty()
            and os.environ.get("TERM") != "dumb"
        ):
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            is_plain = output.color == "never" or bool(os.environ.get("NO_COLOR"))
            console = Console(stderr=True, no_color=True if is_plain else None)
            self._progress = Progress(*columns, console=console, transient=True)

    def __enter__(self) -> Any:
        if self._progress is None:
            return None
        self._progress.start()
        return self._advance

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _advance(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)
