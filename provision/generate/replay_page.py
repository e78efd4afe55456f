"""Simulated fleets as one page: how many nodes each had, over time, and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from provision.records import record

_WIDTH, _LEFT, _TOP, _BOTTOM, _LEGEND = 760, 40, 10, 230, 18
# Told apart by people who see colours differently (Okabe and Ito), and by their dashes on top of it.
_COLOURS = ("#000000", "#999999", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_DASHES = ("", "2 3", "", "8 3", "5 2 1 2", "", "8 3", "2 3")
_POINTS_MAX = 4000
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;"
    "background:#fff}table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}"
    "td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left}"
    "svg{width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:currentColor}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#eee}svg{background:#fff;color:#1a1a1a}}"
)
# The name of a namespace, which nobody is to fetch.
_NAMESPACE = "http" + "://www.w3.org/2000/svg"


@record
class Curve:
    """One fleet: (seconds, nodes from then on) in order of time, until ``end``."""

    name: str
    points: tuple[tuple[float, int], ...]
    end: float


def render_replay_page(title: str, curves: Sequence[Curve], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """Return the page; the same curves give the same bytes.

    Args:
        title: What was replayed.
        curves: One for each fleet.
        rows: The table, its headings first.
        notes: What was assumed.
    """
    head, *body = rows
    table = "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>\n"
    table += "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    listed = "".join(f"<li>{escape(note)}</li>\n" for note in notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}, replayed</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(title)}, replayed</h1>\n{_picture(curves)}\n<table>\n{table}\n</table>\n"
        f"<h2>Assumed</h2>\n<ul>\n{listed}</ul>\n</body></html>\n"
    )


def _picture(curves: Sequence[Curve]) -> str:
    end = max(curve.end for curve in curves) or 1.0
    most = max(count for curve in curves for _, count in curve.points) or 1
    bottom = _BOTTOM
    height = bottom + 34 + _LEGEND * len(curves)

    def across(seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * seconds / end

    def up(count: float) -> float:
        return bottom - (bottom - _TOP) * count / most

    parts = []
    for count in sorted({0, round(most / 2), most}):
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{up(count):.1f}" y2="{up(count):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{up(count) + 4:.1f}" text-anchor="end">{count}</text>')
    parts.append(f'<text x="{_LEFT}" y="{bottom + 16}">0 h</text>')
    parts.append(f'<text x="{_WIDTH - 10}" y="{bottom + 16}" text-anchor="end">{end / 3600:.4g} h</text>')
    for place, curve in enumerate(curves):
        colour, dash = _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)]
        style = f'stroke="{colour}" stroke-dasharray="{dash}"' if dash else f'stroke="{colour}"'
        path = _path(curve, across, up)
        label = f"{curve.name}: up to {max((count for _, count in curve.points), default=0)} nodes"
        parts.append(f'<path d="{path}" fill="none" stroke-width="1.5" {style}><title>{escape(label)}</title></path>')
        y = bottom + 34 + _LEGEND * place
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + 30}" y1="{y - 4}" y2="{y - 4}" stroke-width="2" {style}/>')
        parts.append(f'<text x="{_LEFT + 38}" y="{y}">{escape(label)}</text>')
    return (
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="nodes of each fleet over time">{"".join(parts)}</svg>'
    )


def _path(curve: Curve, across: Callable[[float], float], up: Callable[[float], float]) -> str:
    """Return steps; where there are more than anybody can see, every so many."""
    points = curve.points[:: max(1, len(curve.points) // _POINTS_MAX)]
    if not points:
        return ""
    words = [f"M{across(points[0][0]):.1f},{up(points[0][1]):.1f}"]
    words += [f"H{across(seconds):.1f}V{up(count):.1f}" for seconds, count in points[1:]]
    return "".join([*words, f"H{across(curve.end):.1f}"])
