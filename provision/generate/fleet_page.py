"""What a fleet's Prometheus knows, as one page to look at: no server, no network, no script.

Labels come from machines that are watched, so every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from pathlib import Path

from provision.generate.monitoring import DASHBOARDS
from provision.matrix.model import Panel
from provision.records import record


@record
class Line:
    """One series: its labels, and (seconds since the epoch, value) in order of time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float | None:
        """The newest value."""
        return self.points[-1][1] if self.points else None


@record
class Shown:
    """A panel with what was there; ``warn`` is the value from which it is marked."""

    panel: Panel
    lines: tuple[Line, ...]
    warn: float | None = None


@record
class Survey:
    """All panels, asked of ``address`` at ``asked`` (seconds since the epoch), lines reaching ``hours`` back."""

    address: str
    asked: float
    hours: float
    shown: tuple[Shown, ...]


_UNITS = {
    "Bps": "B/s",
    "celsius": "°C",
    "hertz": "Hz",
    "mbytes": "MiB",
    "megahertz": "MHz",
    "percent": "%",
    "s": "s",
    "short": "",
    "watt": "W",
}
# Up to ten thousand is read digit by digit.
_PREFIXES = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
# From here on a float holds no count exactly.
_COUNT_MAX = 2**53
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 600, 200, 56, 22
_NAMED = 5
_ROWS_MAX = 50


def is_over(row: Shown, line: Line) -> bool:
    """Tell whether a line is now above the value from which its panel marks it."""
    return line.last is not None and row.warn is not None and line.last > row.warn


def render_fleet_page(survey: Survey) -> str:
    """Return the page; the same survey gives the same bytes."""
    when = _moment(survey.asked)
    style = Path(__file__).with_name("fleet_page.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in DASHBOARDS.items())
    body = "".join(
        f'<section id="{name}"><h2>{escape(DASHBOARDS[name])}</h2>{"".join(_section(list(rows)))}</section>\n'
        for name, rows in groupby(survey.shown, key=lambda row: row.panel.dashboard)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>GPU fleet, {when}</title>\n<style>{style}</style></head>\n<body>\n"
        f"<h1>GPU fleet</h1><p>{escape(survey.address)}, asked {when}, the last {survey.hours:g} hours</p>\n"
        f"<nav>{links}</nav>\n{body}</body></html>\n"
    )


def word_value(value: float | None, unit: str) -> str:
    """Return a value with its unit as people read it; ``no data`` for none."""
    if value is None:
        return "no data"
    if unit == "percentunit":
        value, unit = value * 100, "percent"
    mark = _UNITS.get(unit, "")
    if unit == "short" and value % 1 == 0 and abs(value) < _COUNT_MAX:
        # One GPU that is lost of ten thousand is what the count is looked at for.
        return f"{int(value):,}"
    for least, size, prefix in _PREFIXES:
        if abs(value) >= least and unit in ("Bps", "short", "watt"):
            return f"{value / size:.4g} {prefix}{mark}".rstrip()
    # Four digits, and no power of ten where a thousand more are read as easily.
    text = f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{text} {mark}".rstrip()


def name_line(line: Line, panel: Panel) -> str:
    """Return what a line is called: the labels that the panel names, or all."""
    if panel.legend is None:
        return " ".join(f"{key}={value}" for key, value in sorted(line.labels.items())) or panel.title
    words = panel.legend.replace("{{", " ").replace("}}", " ").split()
    # A fleet without the label is one cluster.
    return " ".join(line.labels.get(word, "?") for word in words if word != "cluster" or line.labels.get(word))


def _section(rows: list[Shown]) -> Iterator[str]:
    stats = [row for row in rows if row.panel.kind == "stat"]
    if stats:
        yield f'<div class="stats">{"".join(map(_stat, stats))}</div>'
    yield '<div class="grid">'
    for row in rows:
        if row.panel.kind == "table":
            yield f"<div><h3>{escape(row.panel.title)}</h3>{_table(row)}</div>"
        elif row.panel.kind == "timeseries":
            yield f"<div><h3>{escape(row.panel.title)}</h3>{_chart(row)}</div>"
    yield "</div>"


def _stat(row: Shown) -> str:
    value = row.lines[0].last if row.lines else None
    return f'<div><h3>{escape(row.panel.title)}</h3><div class="value">{word_value(value, row.panel.unit)}</div></div>'


def _table(row: Shown) -> str:
    if not row.lines:
        return "<p>none</p>"
    names = sorted({key for line in row.lines for key in line.labels})
    lines = sorted(row.lines, key=lambda line: ([line.labels.get(name, "") for name in names], line.points))
    head = "".join(f"<th>{escape(name)}</th>" for name in (*names, "value"))
    cells = (
        "".join(_cell(line.labels.get(name, "")) for name in names)
        + f"<td>{word_value(line.last, row.panel.unit)}</td>"
        for line in lines[:_ROWS_MAX]
    )
    more = f"<p>{len(lines) - _ROWS_MAX} more</p>" if len(lines) > _ROWS_MAX else ""
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{cell}</tr>' for cell in cells)}</table>{more}"


def _cell(text: str) -> str:
    mark = ' class="critical"' if text == "critical" else ""
    return f"<td{mark}>{escape(text)}</td>"


def _chart(row: Shown) -> str:
    lines = [line for line in row.lines if line.points]
    if not lines:
        return "<p>no data</p>"
    values = [value for line in lines for _, value in line.points]
    times = [when for line in lines for when, _ in line.points]
    low, high = min(0.0, *values), max(*values, row.warn or 0.0)
    high = high if high > low else low + 1
    first, last = min(times), max(times)
    span = (last - first) or 1.0

    def place(when: float, value: float) -> str:
        x = _LEFT + (when - first) / span * (_WIDTH - _LEFT)
        y = (_HEIGHT - _BOTTOM) * (1 - (value - low) / (high - low)) + 6
        return f"{x:.1f},{y:.1f}"

    paths = "".join(
        f'<polyline class="ln{" over" if is_over(row, line) else ""}"'
        f' points="{" ".join(place(*point) for point in line.points)}"/>'
        for line in sorted(lines, key=lambda line: is_over(row, line))
    )
    ranked = sorted(lines, key=lambda line: (-(line.last or 0.0), name_line(line, row.panel)))
    mark = ""
    if row.warn is not None:
        start, end = place(first, row.warn), place(last, row.warn)
        mark = _rule(start, end, "warn")
    unit = row.panel.unit
    axis = (
        _rule(place(first, low), place(first + span, low), "ax")
        + f'<text x="0" y="14">{word_value(high, unit)}</text>'
        + f'<text x="0" y="{_HEIGHT - _BOTTOM + 6}">{word_value(low, unit)}</text>'
        + f'<text x="{_LEFT}" y="{_HEIGHT - 2}">{_moment(first)}</text>'
        + f'<text x="{_WIDTH}" y="{_HEIGHT - 2}" text-anchor="end">{_moment(last)}</text>'
    )
    many = ' class="many"' if len(lines) > _NAMED else ""
    top = name_line(ranked[0], row.panel)
    label = f"{row.panel.title}: {len(lines)} lines, the highest {top} at {word_value(ranked[0].last, unit)}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}"{many}>{axis}{paths}{mark}</svg>'
        f"<details><summary>{escape(label)}</summary>{_ranking(ranked, row)}</details>"
    )


def _ranking(lines: Iterable[Line], row: Shown) -> str:
    rows = []
    for line in list(lines)[: 2 * _NAMED]:
        mark = ' class="hot"' if is_over(row, line) else ""
        name, value = escape(name_line(line, row.panel)), word_value(line.last, row.panel.unit)
        rows.append(f"<tr><td>{name}</td><td{mark}>{value}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _rule(start: str, end: str, kind: str) -> str:
    (x1, y1), (x2, y2) = start.split(","), end.split(",")
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
