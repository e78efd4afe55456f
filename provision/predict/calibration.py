"""Moves a forecast by what was measured: on the very GPU (calibrated) or on another one (transfer)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import exp, log, sqrt

from provision.predict.bounds import clip, is_beyond
from provision.predict.predictor import Described, Predictor
from provision.predict.request import Forecast
from provision.records import replace

__all__ = ["Calibration"]

_Z = 1.2816
"""Half width of a normal distribution's 80 % interval, in standard deviations."""
_NOISE = 0.03
"""What repeated runs on other hosts differ by, in logarithms, at the least."""
_DOUBT_KNOWN = 0.05
"""How far, in logarithms, a forecast may be off for a setup or model that was learnt from, as a standard deviation."""
_DOUBT_UNKNOWN = 0.3
"""The same for one that was not."""
_PRIOR_ROWS = 5
"""How many rows the expected scatter counts for, against the one seen."""
_DOUBT_SUITE = 30.0
"""The same for a network whose operations nobody stated: everything."""
_ROUNDS = 3
_SETUPS = 0.1
"""How far setups that were learnt from differ in what is new about a table, at the least."""
_NAMED_GPUS = 4

Found = tuple[float, int]


class Calibration:
    """Forecasts corrected by measured rows of the same kind of work; those of another say nothing of a run.

    Args:
        predictor: Made the cold forecasts.
        rows: What was measured: the described run and its value.
    """

    def __init__(self, predictor: Predictor, rows: Sequence[tuple[Described, float]]) -> None:
        works: dict[str, list[tuple[Described, float]]] = defaultdict(list)
        for run, value in rows:
            works[_work(run)].append((run, value))
        self._works = {work: _Work(predictor, members) for work, members in works.items()}

    def has(self, run: Described) -> bool:
        """Tell whether the model of a run was among those measured."""
        work = self._works.get(_work(run))
        return work is not None and work.has(run)

    def forecast(self, run: Described, cold: Forecast) -> Forecast:
        """Return a forecast moved by the measurements that speak of it; the cold one where none does.

        Args:
            run: What is asked.
            cold: Its cold forecast.
        """
        work = self._works.get(_work(run))
        return work.forecast(run, cold) if work is not None else cold


class _Work:
    """Forecasts of one kind of work corrected by measured rows of it.

    A row's miss is the logarithm of measured over cold. It is shared out: what all setups have in common, what the
    rows of one setup (GPU, precision, mode) do, and what is left to each model. How far a forecast follows the
    measurements depends on their number and scatter, and on how much was known before.

    Args:
        predictor: Made the cold forecasts.
        rows: What was measured: the described run and its value.

    Source: Gelman et al. 2013, section 5.4 (partial pooling with known variances).
    """

    def __init__(self, predictor: Predictor, rows: Sequence[tuple[Described, float]]) -> None:
        self._predictor = predictor
        # Where a measured run beats its ceiling, what was asked or the facts are wrong, and the measurements stand.
        self._keeps_bounds = not any(is_beyond(run.signal, log(value)) for run, value in rows)
        misses = [
            (_setup(run), _subject(run), run.signal.keys["gpu"], log(value) - run.estimate.middle)
            for run, value in rows
        ]
        self._gpus = sorted({gpu for _, _, gpu, _ in misses})
        self._setups = _medians([(setup, miss) for setup, _, _, miss in misses])
        self._boards = _medians([(gpu, miss) for _, _, gpu, miss in misses])
        self._common, self._common_left = self._in_common([run for run, _ in rows])
        self._doubt_model = _DOUBT_SUITE if any(run.request.task == "suite" for run, _ in rows) else _DOUBT_UNKNOWN
        if self._doubt_model == _DOUBT_SUITE:
            # Networks differ a thousandfold: only what is left of each says how setups differ (Tukey's median polish).
            for _ in range(_ROUNDS):
                scale = _medians([(subject, miss - self._setups[setup][0]) for setup, subject, _, miss in misses])
                left = [(setup, miss - scale[subject][0]) for setup, subject, _, miss in misses]
                self._setups = _medians(left)
            boards = [(gpu, miss - scale[subject][0]) for _, subject, gpu, miss in misses]
            self._boards = _medians(boards)
            self._common, self._common_left = 0.0, 0.0
        rest = [(subject, setup, miss - self._setups[setup][0]) for setup, subject, _, miss in misses]
        self._own = _medians([((subject, setup), miss) for subject, setup, miss in rest])
        self._alike = _medians([((subject, _manner(setup)), miss) for subject, setup, miss in rest])
        self._subjects = _medians([(subject, miss) for subject, _, miss in rest])
        self._scatter = _scatter([miss for *_, miss in rest], _SETUPS)
        self._left = _scatter([miss - self._subjects[subject][0] for subject, _, miss in rest], _DOUBT_KNOWN)

    def has(self, run: Described) -> bool:
        """Tell whether the model of a run was among those measured."""
        return _subject(run) in self._subjects

    def _in_common(self, runs: Sequence[Described]) -> tuple[float, float]:
        """Return how far all setups miss alike, and the standard deviation of that."""
        medians = [median for median, _ in self._setups.values()]
        if not medians:
            return 0.0, 0.0
        middle = _median(medians)
        differ = max(_spread([median - middle for median in medians]) if len(medians) > 2 else 0.0, _SETUPS)
        if not all(set(run.estimate.known) & {"gpu", "setup"} for run in runs):
            differ = max(differ, _DOUBT_UNKNOWN)
        return _pool((middle, len(medians)), _DOUBT_UNKNOWN, differ)

    def forecast(self, run: Described, cold: Forecast) -> Forecast:
        """Return a forecast moved by the measurements that speak of it; the cold one where none does.

        Args:
            run: What is asked.
            cold: Its cold forecast.
        """
        setup, subject, gpu = _setup(run), _subject(run), run.signal.keys["gpu"]
        board = self._setups.get(setup) or self._boards.get(gpu)
        own = (
            self._own.get((subject, setup)) or self._alike.get((subject, _manner(setup))) or self._subjects.get(subject)
        )
        if board is None and own is None:
            return cold
        known = set(run.estimate.known)
        middle, doubt = run.estimate.middle + self._common, self._common_left**2 if board is None else 0.0
        if board is not None:
            own_part = (board[0] - self._common, board[1])
            prior = _DOUBT_KNOWN if known & {"gpu", "setup"} else self._doubt_model
            shift, left = _pool(own_part, prior, self._scatter)
            middle, doubt = middle + shift, doubt + left**2
        if own is not None:
            shift, left = _pool(own, _DOUBT_KNOWN if "model" in known else self._doubt_model, self._left)
            middle, doubt = middle + shift, doubt + left**2
        told = (*(("gpu", "setup") if board else ()), *(("model",) if own else ()))
        width = self._predictor.half_width(run, told)
        if run.model is None:
            width = _Z * (self._left if own else self._scatter)
        width = sqrt(max(width, _Z * _NOISE) ** 2 + _Z**2 * doubt)
        low, high = middle - width, middle + width
        if self._keeps_bounds:
            low, middle, high = clip(run.signal, low, middle, high)
        if board is not None:
            mode, basis = "calibrated", f"{board[1]} measured runs on {run.request.gpu}"
        else:
            mode, basis = "transfer", f"{own[1] if own else 0} measured runs on {', '.join(self._gpus[:_NAMED_GPUS])}"
        return replace(
            cold,
            value=exp(middle),
            low=exp(low),
            high=exp(high),
            mode=mode,
            basis=(*cold.basis, basis),
        )


def _pool(found: Found, doubt: float, scatter: float) -> tuple[float, float]:
    """Return how far to move by a median of misses, and the standard deviation that is left."""
    median, count = found
    noise = scatter**2 / count
    trust = doubt**2 / (doubt**2 + noise)
    return trust * median, sqrt(trust * noise)


def _work(run: Described) -> str:
    """Return what kind of work a run is; networks are trained on images and infer from them by the same operations."""
    return "vision" if run.request.task.startswith("vision") else run.request.task


def _setup(run: Described) -> str:
    request, keys = run.request, run.signal.keys
    if "setup" in keys:
        return keys["setup"]
    parts = (keys["gpu"], request.precision, request.backend or "", request.stack or "", request.operation or "")
    return "/".join((*parts, "prompt" if request.task == "decode" and request.input_tokens else ""))


def _manner(setup: str) -> str:
    """Return what is left of a setup without its GPU: precision, layout, mode."""
    return setup.partition("/")[2]


def _subject(run: Described) -> str:
    """Return what a measurement elsewhere can be about: a model, or an operation among so many GPUs."""
    request = run.request
    if request.task == "collective":
        return f"{request.operation}/{request.gpus}"
    if request.task == "decode":
        return f"{run.signal.keys['model']}/{'prompt' if request.input_tokens else 'decode'}"
    return run.signal.keys["model"]


def _medians(rows: Sequence[tuple[Hashable, float]]) -> dict[Hashable, Found]:
    grouped: dict[Hashable, list[float]] = defaultdict(list)
    for name, miss in rows:
        grouped[name].append(miss)
    return {name: (_median(misses), len(misses)) for name, misses in grouped.items()}


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _scatter(misses: Sequence[float], expected: float) -> float:
    """Return the standard deviation of misses; a handful of them moves the expected one only so far."""
    count = len(misses)
    seen = _spread(misses)
    return max(_NOISE, sqrt((count * seen**2 + _PRIOR_ROWS * expected**2) / (count + _PRIOR_ROWS)))


def _spread(misses: Sequence[float]) -> float:
    """Return the standard deviation that the median absolute deviation tells, deaf to single broken rows."""
    return 1.4826 * _median([abs(miss) for miss in misses]) if misses else 0.0
