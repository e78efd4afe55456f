"""Moves a forecast by what was measured: on the very GPU (calibrated) or on another one (transfer)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log, sqrt

from provision.predict.bounds import clip, is_beyond
from provision.predict.predictor import Described, Predictor
from provision.predict.request import Forecast
from provision.records import record, replace

_Z = 1.2816
"""Half width of a normal distribution's 80 % interval, in standard deviations."""
_NOISE = 0.03
"""What repeated runs on other hosts differ by, in logarithms, at the least."""
_OWN = 0.3
"""Part of what a forecast may miss by, as a variance, that nothing but a run close to it tells."""
_SHARED_KNOWN, _SHARED_UNKNOWN = 0.25, 1.0
"""Weight of what all runs of one GPU, or of one model, miss alike: where its own offset was learnt, and where not."""
_NEAREST = 40
"""Measured runs that one forecast is made from: the others are further away."""
_KEPT = 64
"""Measured runs kept of one GPU or model, evenly spaced, where there are more."""
_CONTRADICT = 4.0
"""Repeated measurements that differ by more, in expected standard deviations, contradict each other."""
_SAME = 1e-9
_NAMED_GPUS = 4


@record
class _Point:
    """One run where the distances between runs are taken: its coordinates, what it is of, and its doubt."""

    place: tuple[float, ...]
    gpu: str
    model: str
    kind: str
    variance: float
    gpu_weight: float
    model_weight: float
    miss: float = 0.0


class Calibration:
    """Forecasts corrected by measured runs of the same kind of work; those of another say nothing of a run.

    A run's miss is the logarithm of measured over cold. Before anything is measured, it is around zero and as wide as
    the cold interval; what runs have in common (GPU, model, setup, closeness in size, batch and speed) says how far the
    miss of one tells that of another. A forecast follows its probes by exactly that, and is drawn to the cold one for
    the rest. Probes that contradict each other, or that foretell one another worse than cold forecasts do, are not
    followed.

    Args:
        predictor: Made the cold forecasts.
        rows: What was measured: the described run and its value.

    Source: Rasmussen, Williams 2006, section 2.2 (Gaussian process regression); Gelman et al. 2013, section 5.4.
    """

    def __init__(self, predictor: Predictor, rows: Sequence[tuple[Described, float]]) -> None:
        works: dict[str, list[tuple[Described, float]]] = defaultdict(list)
        for run, value in rows:
            works[_work(run)].append((run, value))
        self._works = {work: _Work(predictor, members) for work, members in works.items()}

    def has(self, run: Described) -> bool:
        """Tell whether the model of a run was among those measured."""
        work = self._works.get(_work(run))
        return work is not None and bool(work.models.get(_subject(run)))

    def forecast(self, run: Described, cold: Forecast) -> Forecast:
        """Return a forecast moved by the measurements that speak of it; the cold one where none does.

        Args:
            run: What is asked.
            cold: Its cold forecast.
        """
        work = self._works.get(_work(run))
        return work.forecast(run, cold) if work is not None else cold


class _Work:
    """Measured runs of one kind of work."""

    def __init__(self, predictor: Predictor, rows: Sequence[tuple[Described, float]]) -> None:
        self._predictor = predictor
        # Where a measured run beats its ceiling, what was asked or the facts are wrong, and the measurements stand.
        self._keeps_bounds = not any(is_beyond(run.signal, log(value)) for run, value in rows)
        points = [replace(self._point(run), miss=log(value) - run.estimate.middle) for run, value in rows]
        self.gpus: dict[str, list[_Point]] = defaultdict(list)
        self.models: dict[str, list[_Point]] = defaultdict(list)
        for point in points:
            self.gpus[point.gpu].append(point)
            self.models[point.model].append(point)
        self._kept = {
            name: members[:: max(1, len(members) // _KEPT)][:_KEPT]
            for named in (self.gpus, self.models)
            for name, members in named.items()
        }
        self._trust: dict[str, str | None] = {}

    def forecast(self, run: Described, cold: Forecast) -> Forecast:
        asked = self._point(run)
        near = {id(point): point for name in (asked.gpu, asked.model) for point in self._kept.get(name, ())}
        points = sorted(near.values(), key=lambda point: -_covariance(asked, point))[:_NEAREST]
        if not points:
            return cold
        if (why := self._distrust(asked)) is not None:
            return replace(cold, cautions=(*cold.cautions, why))
        shift, variance = _regress(asked, points)
        middle = run.estimate.middle + shift
        half = _Z * sqrt(max(variance, _NOISE**2))
        low, high = middle - half, middle + half
        if self._keeps_bounds:
            low, middle, high = clip(run.signal, low, middle, high)
        own = self.gpus.get(asked.gpu, [])
        if own:
            mode, basis = "calibrated", f"{_count(own)} on {run.request.gpu}"
        else:
            elsewhere = self.models.get(asked.model, [])
            names = ", ".join(sorted({point.gpu for point in elsewhere})[:_NAMED_GPUS])
            mode, basis = "transfer", f"{_count(elsewhere)} on {names}"
        return replace(cold, value=exp(middle), low=exp(low), high=exp(high), mode=mode, basis=(*cold.basis, basis))

    def _point(self, run: Described) -> _Point:
        signal = run.signal
        half = (run.estimate.high - run.estimate.low) / 2
        # What has no offset of its own is told by features, and as good as known.
        open_ = set(self._predictor.model(run.model).document["offsets"]) if run.model else {"gpu", "model", "setup"}
        unknown = open_ - set(run.estimate.known)
        return _Point(
            place=(signal.physics, log(max(signal.batch, _SAME)) / 2, log(max(signal.gpus, 1)), log(signal.size) / 2),
            gpu=signal.keys["gpu"],
            model=_subject(run),
            kind=_kind(run),
            variance=(half / _Z) ** 2,
            gpu_weight=_SHARED_UNKNOWN if {"gpu", "setup"} & open_ <= unknown and open_ else _SHARED_KNOWN,
            model_weight=_SHARED_UNKNOWN if "model" in unknown else _SHARED_KNOWN,
        )

    def _distrust(self, asked: _Point) -> str | None:
        """Return why the measurements of a GPU are not followed, or ``None`` where they are."""
        if asked.gpu not in self._trust:
            self._trust[asked.gpu] = _judge(self._kept.get(asked.gpu, [])[:_NEAREST])
        return self._trust[asked.gpu]


def _judge(points: Sequence[_Point]) -> str | None:
    """Return why measured runs are not to be followed: they contradict each other, or foretell each other badly."""
    for index, point in enumerate(points):
        for other in points[:index]:
            if point.place == other.place and point.model == other.model and point.kind == other.kind:
                apart = abs(point.miss - other.miss)
                if apart > _CONTRADICT * sqrt(2 * (_NOISE**2 + 0.05 * point.variance)):
                    return (
                        f"two measured runs of one kind on {point.gpu} differ by a factor of {exp(apart):.3g}: "
                        "none is followed, and the forecast stays cold"
                    )
    if len(points) < 2:
        return None
    left = [abs(point.miss - _regress(point, [o for o in points if o is not point])[0]) for point in points]
    if sum(left) > sum(abs(point.miss) for point in points):
        return (
            f"the measured runs on {points[0].gpu} foretell each other worse than the cold forecasts do: "
            "none is followed"
        )
    return None


def _covariance(one: _Point, other: _Point) -> float:
    """Return how far the misses of two runs go together."""
    distance = sum((a - b) ** 2 for a, b in zip(one.place, other.place, strict=True))
    close = exp(-distance / 2)
    gpu = sqrt(one.gpu_weight * other.gpu_weight) if one.gpu == other.gpu else 0.0
    model = sqrt(one.model_weight * other.model_weight) if one.model == other.model else 0.0
    alike = (1.0 if one.kind == other.kind else 0.5) * (0.5 + 0.5 * close)
    total = sqrt(one.gpu_weight * other.gpu_weight) + sqrt(one.model_weight * other.model_weight)
    shared = (gpu + model) / total * alike
    own = close if gpu and model and one.kind == other.kind else 0.0
    return sqrt(one.variance * other.variance) * ((1 - _OWN) * shared + _OWN * own)


def _regress(asked: _Point, points: Sequence[_Point]) -> tuple[float, float]:
    """Return the miss to expect of a run, and its variance, given those of others (Cholesky; a few dozen of them)."""
    if not points:
        return 0.0, asked.variance
    rows: list[list[float]] = []
    half: list[float] = []
    spread: list[float] = []
    for index, point in enumerate(points):
        row: list[float] = []
        for column in range(index):
            value = _covariance(point, points[column])
            value -= sum(a * b for a, b in zip(row, rows[column], strict=False))
            row.append(value / rows[column][column])
        own = point.variance + _NOISE**2 - sum(a * a for a in row)
        row.append(sqrt(max(own, _SAME)))
        rows.append(row)
        half.append((point.miss - sum(a * b for a, b in zip(row, half, strict=False))) / row[-1])
        towards = _covariance(asked, point) - sum(a * b for a, b in zip(row, spread, strict=False))
        spread.append(towards / row[-1])
    shift = sum(a * b for a, b in zip(half, spread, strict=True))
    # Where probes miss by more than was expected, so may everything else.
    seen = sum(a * a for a in half) / len(half)
    variance = max(asked.variance - sum(a * a for a in spread), 0.0)
    prior = 4
    return shift, variance * max(1.0, (prior + len(half) * seen) / (prior + len(half)))


def _count(points: Sequence[_Point]) -> str:
    return f"{len(points)} measured run{'' if len(points) == 1 else 's'}"


def _work(run: Described) -> str:
    """Return what kind of work a run is; networks are trained on images and infer from them by the same operations."""
    if run.request.task == "serve":
        return f"serve/{run.request.metric}"
    return "vision" if run.request.task.startswith("vision") else run.request.task


def _kind(run: Described) -> str:
    """Return how a run is made, whatever its GPU and model: precision, layout, mode, software, operation."""
    request, keys = run.request, run.signal.keys
    if "setup" in keys:
        return keys["setup"].partition("/")[2]
    parts = (request.precision, request.backend or "", request.stack or "", request.operation or "")
    return "/".join((*parts, "prompt" if request.task == "decode" and request.input_tokens else ""))


def _subject(run: Described) -> str:
    """Return what a measurement elsewhere can be about: a model, or an operation among so many GPUs."""
    request = run.request
    if request.task == "collective":
        return f"{request.operation}/{request.gpus}"
    if request.task == "decode":
        return f"{run.signal.keys['model']}/{'prompt' if request.input_tokens else 'decode'}"
    return run.signal.keys["model"]
