"""Achieved against possible: operations a second over operations a byte, under the ceilings of the GPU, as SVG."""

from __future__ import annotations

from html import escape
from math import floor, log10

from provision.bench.results import Results
from provision.errors import UnknownError
from provision.predict.hardware import Accelerator, Hardware

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 760, 460, 70, 50, 30, 20
_COLOURS = {"gemm": "#0072b2", "stream": "#009e73", "transformer": "#d55e00"}
_NAMESPACE = "http" + "://www.w3.org/2000/svg"


def roofline_svg(results: Results, hardware: Hardware) -> str:
    """Return the picture; where the GPU is not known, the best measured bandwidth and rate stand for the ceilings.

    Raises:
        UnknownError: No case tells both its operations and its bytes.
    """
    points = [
        (figure.flop / figure.bytes, figure.flop / figure.seconds, figure.id, figure.kind)
        for figure in results.figures
        if figure.status == "ok" and figure.flop and figure.bytes and figure.seconds
    ]
    if not points:
        raise UnknownError("no case tells both its operations and its bytes", hints=("measure `--only gemm,stream`",))
    ceiling = _ceiling(results, hardware)
    rate = ceiling.tensor_flop_s if ceiling else max(point[1] for point in points)
    speed = ceiling.memory_bytes_s if ceiling else max(point[1] / point[0] for point in points)
    x_low, x_high = _decades(min(point[0] for point in points), max(point[0] for point in points) * 4)
    y_low, y_high = _decades(min(point[1] for point in points), max(rate, *(point[1] for point in points)) * 1.5)

    def x(value: float) -> float:
        return _LEFT + (log10(value) - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (log10(value) - y_low) / (y_high - y_low) * (_HEIGHT - _BOTTOM - _TOP)

    name = ceiling.name if ceiling else f"{results.machine.get('gpu') or 'CPU'}, as measured"
    lines = [
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12" '
        'role="img">',
        f"<title>{escape(f'Roofline of {name}')}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for power in range(x_low, x_high + 1):
        at = x(10.0**power)
        lines.append(f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#dddddd"/>')
        lines.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{10.0**power:g}</text>')
    for power in range(y_low, y_high + 1):
        at = y(10.0**power)
        lines.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}" stroke="#dddddd"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_tera(10.0**power)}</text>')
    knee = rate / speed
    start = max(10.0**x_low, 10.0**y_low / speed)
    corner = min(max(knee, start), 10.0**x_high)
    roof = f"{x(start):.1f},{y(start * speed):.1f} {x(corner):.1f},{y(corner * speed):.1f}"
    if knee < 10.0**x_high:
        roof += f" {x(10.0**x_high):.1f},{y(rate):.1f}"
    lines.append(f'<polyline points="{roof}" fill="none" stroke="#000000" stroke-width="2"/>')
    legend = f"{name}: {rate / 1e12:.4g} TFLOPS, {speed / 1e9:.4g} GB/s"
    lines.append(f'<text x="{_LEFT}" y="{_TOP - 10}">{escape(legend)}</text>')
    for intensity, achieved, label, kind in points:
        share = achieved / min(rate, intensity * speed)
        said = f"{label}: {achieved / 1e12:.3g} TFLOPS, {100 * share:.0f} % of the roof"
        lines.append(
            f'<circle cx="{x(intensity):.1f}" cy="{y(achieved):.1f}" r="5" fill="{_COLOURS.get(kind, "#cc79a7")}">'
            f"<title>{escape(said)}</title></circle>"
        )
        lines.append(
            f'<text x="{x(intensity) + 8:.1f}" y="{y(achieved) + 4:.1f}" font-size="10">{escape(label)}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    lines.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 12}" text-anchor="middle">operations a byte</text>')
    lines.append(f'<text x="16" y="{_HEIGHT / 2:.0f}" transform="rotate(-90 16 {_HEIGHT / 2:.0f})">TFLOPS</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _ceiling(results: Results, hardware: Hardware) -> Accelerator | None:
    name = results.machine.get("gpu")
    if not isinstance(name, str):
        return None
    try:
        return hardware.find(name)
    except UnknownError:
        return None


def _decades(low: float, high: float) -> tuple[int, int]:
    first = floor(log10(low))
    return first, max(first + 1, -floor(-log10(high)))


def _tera(value: float) -> str:
    return f"{value / 1e12:g}"
