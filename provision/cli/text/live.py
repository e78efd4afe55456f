"""A table on the standard error that fills while targets answer, and goes away when all have."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from provision.cli.targets import Advance
from provision.probe.clean import clean_line
from provision.signals.signal import FAIL, PASS, UNKNOWN

_ROWS_MAX = 20
_LINES_AROUND = 4
"""Heading, bar and a line to spare."""


class Board:
    """How many targets have answered, and what they answered; those with failures stay, the others scroll by.

    Args:
        total: How many targets are asked.
        counts: Target → status → how many checks; filled by whoever judges, before a target is reported as done.
        has_color: Whether colours may be used; NO_COLOR forbids them too.
    """

    def __init__(self, total: int, counts: Mapping[str, Mapping[str, int]], *, has_color: bool = True) -> None:
        self._counts = counts
        self._console = Console(stderr=True, no_color=None if has_color else True)
        self._bar = Progress(TextColumn("answered"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self._bar.add_task("answered", total=total)
        self._bad: list[str] = []
        self._good: list[str] = []
        self._silent: set[str] = set()
        self._live = Live(get_renderable=self.draw, console=self._console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Advance:
        self._live.start()
        return self.advance

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def advance(self, name: str, is_fine: bool | None) -> None:
        """Take one target that is done."""
        (self._good if is_fine else self._bad).append(name)
        if is_fine is None:
            self._silent.add(name)
        self._bar.update(self._task, advance=1)

    def draw(self) -> Group:
        """Return what is on the screen now."""
        rows = max(1, min(_ROWS_MAX, self._console.height - _LINES_AROUND))
        bad = self._bad[-rows:]
        good = self._good[-(rows - len(bad)) :] if len(bad) < rows else []
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("target", no_wrap=True, overflow="ellipsis")
        for heading in ("passed", "failed", "unknown"):
            table.add_column(heading, justify="right")
        for name in (*bad, *good):
            style = "red" if name in bad else ""
            if name in self._silent:
                table.add_row(Text(clean_line(name, 80), style), Text("no answer", style), "", "")
                continue
            counts = self._counts.get(name, {})
            cells = [str(counts.get(status, 0)) for status in (PASS, FAIL, UNKNOWN)]
            table.add_row(Text(clean_line(name, 80), style), *cells)
        return Group(table, self._bar) if bad or good else Group(self._bar)
