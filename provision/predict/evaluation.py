"""Scores forecasts, and the baselines beside them, against a table of measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from provision.errors import IncompatibleError, UnknownError, UsageError
from provision.predict.baseline import BASELINES, Baseline
from provision.predict.calibration import Calibration
from provision.predict.predictor import Described, Predictor
from provision.predict.request import Forecast
from provision.predict.tables import Kind, Measured, Sheet
from provision.records import record

_INFINITY = float("inf")
_CLOSE = 0.08
"""What the articles claim to miss by at most."""
_PROBES = 5
_ROWS_MIN = 12
_NAMED = 3


@record
class Score:
    """How well rows were answered; a refused row is a miss.

    ``mdape_percent`` and ``p90_percent`` are absent where so many rows were refused that the quantile is one of them.
    ``coverage_80`` is the share of rows whose 80 % interval holds the measured value, absent for baselines.
    ``not_positive`` counts answers of zero or below.
    """

    rows: int
    answered_share: float
    mdape_percent: float | None
    p90_percent: float | None
    within_8_share: float
    coverage_80: float | None = None
    not_positive: int = 0


@record
class Refused:
    """One row that was not answered: its number and why."""

    line: int
    reason: str


@record
class Evaluation:
    """What :func:`evaluate` found.

    ``modes`` holds a score for each mode that the table can show. ``is_in_sample`` tells that the table is one that was
    learnt from, which flatters; ``is_baseline_in_sample`` the same of the baselines. ``assumed`` pairs the columns that
    the table has not with what was taken to be so.
    """

    kind: str
    score: Score
    modes: dict[str, Score]
    baselines: dict[str, Score]
    refused: tuple[Refused, ...]
    skipped: tuple[Refused, ...]
    is_baseline_in_sample: bool
    is_in_sample: bool
    assumed: tuple[tuple[str, str], ...] = ()


def read_rows(
    sheet: Sheet, kind: Kind, *, is_strict: bool = True
) -> tuple[list[Measured], list[Refused], list[Refused]]:
    """Return the measured rows of a sheet, those that are malformed, and those that say that nothing was measured.

    Args:
        sheet: The table.
        kind: What it is.
        is_strict: Refuse the table for a malformed row, rather than collect such rows.

    Raises:
        UsageError: A row lacks what it needs, or holds something impossible; names the row.
    """
    rows: list[Measured] = []
    bad: list[Refused] = []
    empty: list[Refused] = []
    for cells in sheet.rows:
        if cells.fault is None and kind.is_unmeasured(cells):
            empty.append(Refused(line=cells.line, reason="nothing was measured"))
            continue
        try:
            cells.check()
            rows.append(kind.read(cells))
        except UsageError as error:
            if is_strict:
                where = "" if error.message.startswith("row ") else f"row {cells.line}: "
                raise UsageError(
                    f"{sheet.path}: {where}{error.message}",
                    because=error.because,
                    hints=(*error.hints, "mend the row, or leave it out"),
                ) from error
            bad.append(Refused(line=cells.line, reason=error.message.removeprefix(f"row {cells.line}: ")))
    return rows, bad, empty


def evaluate(
    sheet: Sheet,
    kind: Kind,
    predictor: Predictor,
    *,
    measured: Sequence[Measured] = (),
    is_strict: bool = False,
    on_row: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Score a table.

    The first score is of what a user would get: cold forecasts, which see no measured value of the table, or, with
    ``measured``, forecasts calibrated by those rows. ``modes`` adds what the table itself can show: each GPU's rows
    with all other GPUs' measured (transfer), and with a few of its own as well (calibrated).

    Args:
        sheet: The table.
        kind: What it is.
        predictor: Makes the forecasts.
        measured: Rows of another table, or of a part of this one, that may be used.
        is_strict: Refuse the table for a malformed row; such a row counts as missed otherwise.
        on_row: Told, after each row, how many there are.

    Raises:
        UsageError: No row is left, or ``is_strict`` and a row is malformed.
    """
    rows, bad, empty = read_rows(sheet, kind, is_strict=is_strict)
    if not rows:
        raise UsageError(
            f"{sheet.path} has no measured row",
            because=[f"row {row.line}: {row.reason}" for row in bad[:_NAMED]],
            hints=("`docs/predict.md` lists the tables and their columns",),
        )
    for row in (*rows, *measured):
        predictor.networks.learn(row.request)
    runs: list[tuple[Described, float]] = []
    refused = list(bad)
    for row in rows:
        try:
            runs.append((predictor.describe(row.request), row.value))
        except (IncompatibleError, UnknownError, UsageError) as error:
            refused.append(Refused(line=row.line, reason=error.message))
        on_row(len(rows))
    calibration = Calibration(predictor, _described(predictor, measured)) if measured else None
    cold = [predictor.forecast(run) for run, _ in runs]
    answers = (
        [calibration.forecast(run, first) for (run, _), first in zip(runs, cold, strict=True)] if calibration else cold
    )
    values = [value for _, value in runs]
    modes = {"given": score(answers, values, len(refused))} if calibration else {}
    modes["cold"] = score(cold, values, len(refused))
    modes |= _inner_modes(predictor, runs, cold)
    baselines, is_fitted_here = _baselines(predictor, runs)
    return Evaluation(
        kind=kind.name,
        score=score(answers, values, len(refused)),
        modes=modes,
        baselines={
            name: _score_plain(
                [baselines[run.model, run.request.task].predict(name, run.signal) for run, _ in runs],
                values,
                len(refused),
            )
            for name in BASELINES
        }
        if runs
        else {},
        refused=tuple(sorted(refused, key=lambda row: row.line)),
        skipped=tuple(empty),
        is_baseline_in_sample=is_fitted_here,
        is_in_sample=_is_in_sample(predictor, sheet, runs),
        assumed=kind.assumed(sheet),
    )


def _described(predictor: Predictor, rows: Sequence[Measured]) -> list[tuple[Described, float]]:
    found = []
    for row in rows:
        try:
            found.append((predictor.describe(row.request), row.value))
        except (IncompatibleError, UnknownError):
            continue
    return found


def _baselines(
    predictor: Predictor, runs: Sequence[tuple[Described, float]]
) -> tuple[dict[tuple[str | None, str], Baseline], bool]:
    """Return the baselines of every model and task in a table, and whether one was fitted to the table itself."""
    groups: dict[tuple[str | None, str], list[tuple[Described, float]]] = defaultdict(list)
    for run, value in runs:
        groups[run.model, run.request.task].append((run, value))
    found = {
        (name, task): Baseline.fit([(run.signal, value) for run, value in members])
        if name is None
        else Baseline.of(predictor.model(name))
        for (name, task), members in groups.items()
    }
    return found, any(name is None for name, _ in groups)


def _is_in_sample(predictor: Predictor, sheet: Sheet, runs: Sequence[tuple[Described, float]]) -> bool:
    names = {run.model for run, _ in runs if run.model}
    return any(
        source["sha256"] == sheet.sha256 for name in names for source in predictor.model(name).document["sources"]
    )


def _inner_modes(
    predictor: Predictor, runs: Sequence[tuple[Described, float]], cold: Sequence[Forecast]
) -> dict[str, Score]:
    boards: dict[str, list[int]] = defaultdict(list)
    for index, (run, _) in enumerate(runs):
        boards[run.signal.keys["gpu"]].append(index)
    if len(boards) < 2 or len(runs) < _ROWS_MIN:
        return {}
    moved: dict[str, list[Forecast]] = {"transfer": [], "calibrated": []}
    values: dict[str, list[float]] = {"transfer": [], "calibrated": []}
    for board, members in boards.items():
        others = [runs[index] for name, indices in boards.items() if name != board for index in indices]
        transfer = Calibration(predictor, others)
        probes = set(members[:: max(1, len(members) // _PROBES)][:_PROBES]) if len(members) > 2 * _PROBES else set()
        calibrated = Calibration(predictor, [*others, *(runs[index] for index in sorted(probes))])
        for index in members:
            run, value = runs[index]
            answer = transfer.forecast(run, cold[index])
            moved["transfer"].append(answer)
            values["transfer"].append(value)
            if probes and index not in probes:
                moved["calibrated"].append(calibrated.forecast(run, cold[index]))
                values["calibrated"].append(value)
    return {mode: score(answers, values[mode], 0) for mode, answers in moved.items() if answers}


def score(answers: Sequence[Forecast], values: Sequence[float], refused: int) -> Score:
    """Return how far forecasts are off, with so many rows beside them that were refused."""
    covered = sum(answer.low <= value <= answer.high for answer, value in zip(answers, values, strict=True))
    plain = _score_plain([answer.value for answer in answers], values, refused)
    return Score(
        rows=plain.rows,
        answered_share=plain.answered_share,
        mdape_percent=plain.mdape_percent,
        p90_percent=plain.p90_percent,
        within_8_share=plain.within_8_share,
        coverage_80=covered / plain.rows,
    )


def _score_plain(answers: Sequence[float], values: Sequence[float], refused: int) -> Score:
    errors = [abs(answer / value - 1) for answer, value in zip(answers, values, strict=True)]
    errors += [_INFINITY] * refused
    errors.sort()
    return Score(
        rows=len(errors),
        answered_share=len(values) / len(errors),
        mdape_percent=_percent(_quantile(errors, 0.5)),
        p90_percent=_percent(_quantile(errors, 0.9)),
        within_8_share=sum(error <= _CLOSE for error in errors) / len(errors),
        not_positive=sum(answer <= 0 for answer in answers),
    )


def _quantile(ordered: Sequence[float], level: float) -> float:
    place = (len(ordered) - 1) * level
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    if ordered[high] == _INFINITY:
        return _INFINITY if place > low else ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _percent(share: float) -> float | None:
    return None if share == _INFINITY else 100 * share
