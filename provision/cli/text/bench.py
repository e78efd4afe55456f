"""How measurements and comparisons look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from provision.bench.bands import Band, Unjudged
from provision.bench.compare import Comparison
from provision.bench.results import Figure, Results
from provision.cli.text.screen import align

_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MACHINE = ("gpu", "driver", "torch", "cuda", "python", "system", "cpus")


def show_results(results: Results, bands: Sequence[Band], unjudged: Sequence[Unjudged]) -> str:
    """Return a line a case, and beneath them what the facts ask of such a GPU, and what they cannot judge."""
    about = ", ".join(f"{key} {results.machine[key]}" for key in _MACHINE if results.machine.get(key))
    lines = [about or "an unknown machine"]
    if results.lock_digest:
        lines.append(f"lock {results.lock_digest}")
    rows = [("case", "time", "noise", "rate", "")]
    rows += [_figure(figure) for figure in results.figures]
    lines += ["", *align(rows)]
    if bands or unjudged:
        lines += ["", *align([*(_band(band) for band in bands), *(_unjudged(row) for row in unjudged)])]
    return "\n".join(lines)


def show_comparison(found: Comparison) -> str:
    """Return a line a case, the slower ones first."""
    order = {"slower": 0, "unknown": 1, "gone": 2, "unsure": 3, "faster": 4, "new": 5, "same": 6}
    rows = [("case", "verdict", "rate", "counts from", "")]
    for row in sorted(found.differences, key=lambda row: order[row.verdict]):
        change = "–" if row.ratio is None else f"{100 * (row.ratio - 1):+.1f} %"
        limit = "–" if row.limit is None else f"{100 * row.limit:.1f} %"
        rows.append((row.id, row.verdict, change, limit, row.reason or ""))
    counts = [
        f"{sum(row.verdict == verdict for row in found.differences)} {verdict}"
        for verdict in order
        if any(row.verdict == verdict for row in found.differences)
    ]
    lines = [*align(rows), "", ", ".join(counts)]
    if found.baseline_runs > 1:
        noise = ", ".join(f"{kind} {100 * value:.1f} %" for kind, value in found.run_noise.items())
        lines.append(f"noise between the {found.baseline_runs} runs of the baseline: {noise or 'unknown'}")
    return "\n".join(lines)


def _figure(figure: Figure) -> tuple[str, str, str, str, str]:
    if figure.status != "ok" or not figure.seconds:
        return figure.id, figure.status, "", "", figure.reason or ""
    said = f"throttled: {', '.join(figure.throttled)}" if figure.throttled else figure.reason or ""
    rate = _scaled(figure.rate or 0.0, figure.unit or "")
    return figure.id, _time(figure.seconds), f"{100 * figure.noise:.1f} %", rate, said


def _band(band: Band) -> tuple[str, str, str]:
    verdict = "as a healthy GPU" if band.is_met else "BELOW a healthy GPU"
    return band.measure, f"{band.value:.4g} {band.unit}", f"{verdict}: {band.floor:g} {band.unit} [{band.floor_id}]"


def _unjudged(row: Unjudged) -> tuple[str, str, str]:
    return row.measure, f"{row.value:.4g} {row.unit}", f"not judged: {row.why}"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _scaled(rate: float, unit: str) -> str:
    for factor, prefix in _SCALES:
        if rate >= factor:
            return f"{rate / factor:.3g} {prefix}{unit}" if unit != "samples/s" else f"{rate:,.0f} {unit}"
    return f"{rate:.3g} {unit}"
