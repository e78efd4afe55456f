"""A table on the standard error that fills while a playbook runs, hosts × roles, and goes away at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from provision.node.events import CHANGED, FAILED, INCOMPLETE, NOT_RUN, OK, UNREACHABLE, HostResult, Run
from provision.probe.clean import clean_line

_ROWS_MAX = 24
_LINES_AROUND = 5
"""Heading, legend, bar, what is done now, and a line to spare."""
_MARKS = {
    "ok": ("=", "green"),
    "changed": ("+", "yellow"),
    "failed": ("!", "bold red"),
    "unreachable": ("?", "bold red"),
    "skipped": ("-", "dim"),
}
_LEGEND = "= as it should be   + changed   - not needed   ! failed   ? unreachable"
_ORDER = {FAILED: 0, UNREACHABLE: 0, INCOMPLETE: 1, CHANGED: 2, OK: 2, NOT_RUN: 3}
_HEADING_CHARACTERS = 9


class NodeBoard:
    """Which role has come how far on which host; hosts with trouble stay on the screen, the others scroll by.

    Args:
        run: Collects the events.
        names: Every host.
        has_color: Whether colours may be used; NO_COLOR forbids them too.
    """

    def __init__(self, run: Run, names: Sequence[str], *, has_color: bool = True) -> None:
        self._run = run
        self._names = tuple(names)
        self._console = Console(stderr=True, no_color=None if has_color else True)
        self._bar = Progress(TextColumn("finished"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self._bar.add_task("finished", total=len(self._names))
        self._live = Live(get_renderable=self.draw, console=self._console, transient=True, refresh_per_second=4)

    def __enter__(self) -> NodeBoard:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self) -> Group:
        """Return what is on the screen now."""
        results = self._run.results()
        self._bar.update(self._task, completed=sum(row.status in (OK, CHANGED, FAILED, UNREACHABLE) for row in results))
        room = max(1, min(_ROWS_MAX, self._console.height - _LINES_AROUND))
        shown = sorted(results, key=lambda row: _ORDER[row.status])[:room]
        names = {row.name for row in shown}
        roles = tuple(self._run.roles)
        width = max((len(row.name) for row in shown), default=4) + 2
        is_wide = width + (_HEADING_CHARACTERS + 2) * len(roles) <= self._console.width
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=max(12, self._console.width // 3))
        for role in roles if is_wide else ("roles",):
            table.add_column(role.removeprefix("gpu_")[:_HEADING_CHARACTERS], no_wrap=True)
        for row in results:
            if row.name in names:
                cells = [_mark(row, role) for role in roles]
                table.add_row(clean_line(row.name, 80), *(cells if is_wide else [Text.assemble(*cells)]))
        batch = f"batch {self._run.batch}" if self._run.batch > 1 else None
        now = " · ".join(word for word in (self._run.play, batch, self._run.role, self._run.task) if word)
        hidden = len(results) - len(shown)
        lines = [Text(_LEGEND, "dim"), Text(now, no_wrap=True, overflow="ellipsis")]
        if hidden:
            lines.insert(0, Text(f"and {hidden} more", "dim"))
        return Group(table, *lines, self._bar)


def _mark(row: HostResult, role: str) -> Text:
    return Text(*_MARKS.get(row.roles.get(role, ""), ("·", "dim")))
