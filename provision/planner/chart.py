"""Rows as a picture of cost against time: SVG, a page around it, or characters."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from html import escape

from provision.planner.plan import Plan, Row
from provision.records import record

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 30, 50
# Told apart by people who see colours differently (Okabe and Ito), and by their shape on top of it.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_SIDES = (0, 3, 4, 5, 6, 8, 10)
_STEPS = (1, 2, 5)
# The name of a namespace, which nobody is to fetch.
_NAMESPACE = "http" + "://www.w3.org/2000/svg"


@record
class _Scale:
    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value lies between the ends, from 0 to 1, by its logarithm."""
        span = math.log(self.high / self.low)
        return math.log(value / self.low) / span if span else 0.5

    def ticks(self) -> list[float]:
        """Return round numbers between the ends."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        found = [step * 10.0**power for power in range(first, last + 1) for step in _STEPS]
        return [tick for tick in found if self.low <= tick <= self.high]


def _scale(values: Sequence[float]) -> _Scale:
    return _Scale(low=min(values) / 1.25, high=max(values) * 1.25)


def _shown(plan: Plan) -> list[Row]:
    return [row for row in plan.rows if row.cost.usd > 0 and 0 < row.hours[1] < math.inf]


def _title(row: Row) -> str:
    return (
        f"{row.nodes} × {row.offer.name} {row.purchase}: {row.cost.usd:.2f} USD, {row.hours[1]:.3g} h, "
        f"{row.gpus} × {row.offer.gpu.name}"
    )


def svg_text(plan: Plan) -> str:
    """Return the picture as SVG: each row a mark, full where nothing else beats it; a line along cost and time.

    The words are in the picture, so that it says the same without colours; every mark has a title.
    """
    rows = _shown(plan)
    label = f"Cost and time of {len(rows)} ways to run the job"
    lines = [
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{label}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    if not rows:
        return "\n".join([*lines, f'<text x="{_LEFT}" y="{_TOP + 20}">nothing to draw</text>', "</svg>"]) + "\n"
    across, up = _scale([row.hours[1] for row in rows]), _scale([row.cost.usd for row in rows])

    def at(row: Row) -> tuple[float, float]:
        return _at(across, up, row.hours[1], row.cost.usd)

    lines += _axes(across, up)
    front = [at(row) for row in _frontier(rows)]
    if len(front) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(front))
        lines.append(f'<polyline points="{path}" fill="none" stroke="#888" stroke-dasharray="4 3"/>')
    providers = sorted({row.offer.instance.provider for row in rows})
    for row in rows:
        number = providers.index(row.offer.instance.provider)
        x, y = at(row)
        lines.append(_mark(number, x, y, 5.0 if row.is_first else 3.0, _title(row), is_full=row.is_first))
    for number, provider in enumerate(providers):
        y = _TOP + 8 + 16 * number
        lines.append(_mark(number, _WIDTH - 110, y, 5.0, provider, is_full=True))
        lines.append(f'<text x="{_WIDTH - 100}" y="{y + 4}">{escape(provider)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _frontier(rows: list[Row]) -> list[Row]:
    """Return the rows that none is both cheaper and faster than; the risk, which has no axis, is left out."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.cost.usd, row.hours[1])):
        if not found or row.hours[1] < found[-1].hours[1]:
            found.append(row)
    return found


def _at(across: _Scale, up: _Scale, hours: float, usd: float) -> tuple[float, float]:
    x = _LEFT + across.place(hours) * (_WIDTH - _LEFT - _RIGHT - 110)
    return x, _HEIGHT - _BOTTOM - up.place(usd) * (_HEIGHT - _TOP - _BOTTOM)


def _axes(across: _Scale, up: _Scale) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT - 110
    lines = [f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#333"/>']
    for tick in across.ticks():
        x, _ = _at(across, up, tick, up.low)
        lines.append(f'<path d="M{x:.1f} {bottom}v5" stroke="#333"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks():
        _, y = _at(across, up, across.low, tick)
        lines.append(f'<path d="M{_LEFT - 5} {y:.1f}H{right}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    lines.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 12}" text-anchor="middle">hours</text>')
    lines.append(f'<text x="{_LEFT - 40}" y="{_TOP - 12}">USD</text>')
    return lines


def _mark(number: int, x: float, y: float, radius: float, title: str, *, is_full: bool) -> str:
    colour, sides = _COLOURS[number % len(_COLOURS)], _SIDES[number % len(_SIDES)]
    look = f'fill="{colour}"' if is_full else f'fill="white" stroke="{colour}"'
    inside = f"<title>{escape(title)}</title>"
    if not sides:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {look}>{inside}</circle>'
    corners = []
    for corner in range(sides):
        turn = 2 * math.pi * corner / sides - math.pi / 2
        corners.append(f"{x + radius * 1.3 * math.cos(turn):.1f},{y + radius * 1.3 * math.sin(turn):.1f}")
    return f'<polygon points="{" ".join(corners)}" {look}>{inside}</polygon>'


def html_text(plan: Plan, heading: str, columns: tuple[tuple[str, Callable[[Row], str]], ...], most: int) -> str:
    """Return a page with the picture and its rows as a table; it needs nothing from elsewhere.

    Args:
        plan: The plan.
        heading: What was asked.
        columns: Heading and text of each column.
        most: Rows of the table.
    """
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name, _ in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(text(row))}</td>" for _, text in columns) + "</tr>" for row in plan.rows[:most]
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(heading)}</title>
<style>
body {{ font: 16px/1.4 sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: #111; background: #fff }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px }}
th, td {{ text-align: left; padding: .3em .5em; border-bottom: 1px solid #ccc }}
svg {{ max-width: 100%; height: auto }}
</style>
<h1>{escape(heading)}</h1>
{svg_text(plan)}<table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</html>
"""


def terminal_text(plan: Plan, *, columns: int = 80, lines: int = 16) -> str:
    """Return the picture in characters: a letter for each of the first rows, a dot for the others.

    Args:
        plan: The plan.
        columns: Width of a line.
        lines: Height of the field, without its axis and legend.
    """
    rows = _shown(plan)
    if not rows:
        return "nothing to draw"
    across, up = _scale([row.hours[1] for row in rows]), _scale([row.cost.usd for row in rows])
    width = max(len(f"{up.high:.3g}"), len(f"{up.low:.3g}"), 3)
    wide = columns - width - len(" │")
    field = [[" "] * wide for _ in range(lines)]
    letters = "abcdefghijklmnopqrstuvwxyz"
    front = [row for row in rows if row.is_first][: len(letters)]
    named = {id(row): letters[number] for number, row in enumerate(front)}
    # Letters last, so that no dot hides one.
    for row in sorted(rows, key=lambda row: id(row) in named):
        x = min(int(across.place(row.hours[1]) * wide), wide - 1)
        y = lines - 1 - min(int(up.place(row.cost.usd) * lines), lines - 1)
        field[y][x] = named.get(id(row), "·")
    sides = [f"{up.high:.3g}", *[""] * (lines - 2), f"{up.low:.3g}"]
    drawn = [f"{side:>{width}} │{''.join(line).rstrip()}" for side, line in zip(sides, field, strict=True)]
    ends = f"{across.low:.3g}" + f"{across.high:.3g} hours".rjust(wide - len(f"{across.low:.3g}"))
    legend = [
        line
        for letter, row in zip(letters, front, strict=False)
        for line in textwrap.wrap(_title(row), columns, initial_indent=f"  {letter}  ", subsequent_indent=" " * 5)
    ]
    return "\n".join([f"{'USD':>{width}}", *drawn, " " * width + " └" + "─" * wide, " " * (width + 2) + ends, *legend])
