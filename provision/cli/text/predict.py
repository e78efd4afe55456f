"""How forecasts and scores look, for people and as documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provision.cli.text.paragraph import wrap
from provision.cli.text.screen import align
from provision.predict.evaluation import Evaluation, Score
from provision.predict.request import Forecast, PredictRequest
from provision.records import fields_of, plain

_BASELINE_NAMES = {"seed": "the articles' formula", "constant": "constant utilisation"}
_MODE_NAMES = {"given": "with --measured"}
_REFUSED_LISTED = 50


def forecast_document(
    request: PredictRequest,
    forecast: Forecast,
    baseline_name: str | None,
    baseline: float | None,
    first: Forecast | None = None,
) -> dict[str, Any]:
    """Return a forecast as plain data, with the parts of its request that were given."""
    given = {name: getattr(request, name) for name in fields_of(PredictRequest)}
    document: dict[str, Any] = {
        "request": {name: value for name, value in given.items() if value is not None},
        "forecast": plain(forecast),
    }
    if request.task == "train":
        document["total"] = {"value": forecast.value * request.gpus, "unit": "tokens/s"}
    if first is not None:
        document["first_token"] = plain(first)
        document["end_to_end"] = dict(zip(("low", "value", "high"), end_to_end(request, forecast, first), strict=True))
    if baseline is not None:
        document["baseline"] = {"name": baseline_name, "value": baseline, "unit": forecast.unit}
    return document


def show_forecast(
    request: PredictRequest,
    forecast: Forecast,
    baseline_name: str | None,
    baseline: float | None,
    first: Forecast | None = None,
    *,
    columns: int,
) -> str:
    """Return a forecast for a terminal of so many columns."""
    rows = [
        ("forecast", f"{_short(forecast.value)} {forecast.unit}"),
        ("interval", f"{_short(forecast.low)} to {_short(forecast.high)} ({100 * forecast.confidence:.0f} %)"),
        ("mode", forecast.mode),
    ]
    if request.task == "train" and request.gpus > 1:
        rows.insert(1, ("together", f"{_short(forecast.value * request.gpus)} tokens/s on {request.gpus} GPUs"))
    if first is not None:
        low, value, high = end_to_end(request, forecast, first)
        rows[0] = ("between", f"{_short(forecast.value)} ms between tokens")
        rows.insert(
            2, ("first", f"{_short(first.value)} ms to the first token ({_short(first.low)} to {_short(first.high)})")
        )
        rows.insert(3, ("answer", f"{_short(value)} ms to the last token ({_short(low)} to {_short(high)})"))
    rows += [("rests on" if not index else "", text) for index, text in enumerate(forecast.basis)]
    if baseline is not None and baseline_name is not None:
        rows.append(("baseline", f"{_BASELINE_NAMES[baseline_name]} says {_short(baseline)} {forecast.unit}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(line for name, text in rows for line in wrap(text, columns, lead=f"{name:{width}}  "))


def evaluation_document(found: Evaluation, baselines: Sequence[str]) -> dict[str, Any]:
    """Return scores as plain data; the score of the forecasts a user would get stands at the top."""
    return {
        "kind": found.kind,
        **plain(found.score),
        "modes": {mode: plain(score) for mode, score in found.modes.items()},
        "baselines": {name: plain(found.baselines[name]) for name in baselines if name in found.baselines},
        "in_sample": found.is_in_sample,
        "baselines_in_sample": found.is_baseline_in_sample,
        "refused": [plain(row) for row in found.refused[:_REFUSED_LISTED]],
        "refused_count": len(found.refused),
        "skipped_count": len(found.skipped),
        "assumed": dict(found.assumed),
    }


def end_to_end(request: PredictRequest, between: Forecast, first: Forecast) -> tuple[float, float, float]:
    """Return the milliseconds to the last token: an early, the likely and a late end."""
    later = (request.output_tokens or 1024) - 1
    return tuple(one + later * each for one, each in zip(_ends(first), _ends(between), strict=True))  # type: ignore[return-value]


def _ends(forecast: Forecast) -> tuple[float, float, float]:
    return forecast.low, forecast.value, forecast.high


def show_evaluation(found: Evaluation, baselines: Sequence[str]) -> str:
    """Return scores for a terminal, a line each, within 80 columns."""
    heading = ("forecast", "rows", "answered", "MdAPE", "P90", "within 8 %", "80 % holds")
    rows: list[tuple[str, ...]] = [heading]
    named = {_MODE_NAMES.get(mode, mode): score for mode, score in found.modes.items()}
    named |= {_BASELINE_NAMES[name]: found.baselines[name] for name in baselines if name in found.baselines}
    rows += [_line(name, score) for name, score in named.items()]
    lines = [f"{found.kind}: errors of forecasts against what was measured", "", *align(rows)]
    below = [f"{score.not_positive} of {name}" for name, score in named.items() if score.not_positive]
    if below:
        lines += ["", f"forecasts at or below zero: {', '.join(below)}"]
    if found.is_in_sample:
        lines += ["", "The forecasts were learnt from this very table, which flatters them."]
    if found.is_baseline_in_sample:
        lines += ["", "The baselines were fitted to this very table, which flatters them."]
    return "\n".join(lines)


def _line(name: str, score: Score) -> tuple[str, ...]:
    return (
        name,
        str(score.rows),
        f"{100 * score.answered_share:.1f} %",
        _percent(score.mdape_percent),
        _percent(score.p90_percent),
        f"{100 * score.within_8_share:.0f} %",
        "–" if score.coverage_80 is None else f"{100 * score.coverage_80:.0f} %",
    )


def _percent(value: float | None) -> str:
    return "refused" if value is None else f"{value:.1f} %"


def _short(value: float) -> str:
    """Return a number with three digits that mean something."""
    if value and abs(value) < 100:
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}".replace(",", " ")
