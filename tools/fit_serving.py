"""How far serving engines stay from the hardware's ceilings: constants of the roofline, fitted to measured deployments.

Each part of a step, and of the wait for the first token, gets one constant above zero; an engine has its own factors
for what its software decides. Constants are drawn to where hardware studies put them (a Gaussian prior on their
logarithms), so that a part that few rows tell of stays plausible. Needs numpy and SciPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from provision.predict.predictor import Predictor
from provision.predict.request import PredictRequest
from provision.predict.serving import PROMPT, Engine, first_parts, first_terms, prompt_seconds, step_terms
from provision.records import replace

Array = Any
Deployment = tuple[PredictRequest, float, float | None]
"""A request, its milliseconds between tokens, and to the first one where that was measured."""

_STEP = {
    # Engines read weights at 80 to 90 % of the bandwidth.
    "weights": (1.17, 0.003),
    "experts": (1.3, 0.35),
    "unpack": (0.3, 0.7),
    "cache": (1.4, 0.4),
    "latent": (1.6, 0.5),
    "layers": (25.0, 0.7),
    "step": (0.5, 0.7),
    "exchange_start": (8.0, 0.6),
    "exchange": (2.0, 0.7),
    "dispatch": (5.0, 0.7),
    "scheduling": (3.0, 0.7),
    "prompt_products": (1.6, 0.4),
    "prompt_experts": (3.0, 0.5),
    "prompt_attention": (2.0, 0.5),
    "prompt_exchange": (2.0, 0.5),
    "prompt_layers": (60.0, 0.7),
}
"""Part of a step → the middle of its constant beforehand, and its standard deviation as a logarithm."""
_OWN = (
    ("layers", "step"),
    ("prompt_products", "prompt_experts", "prompt_attention", "prompt_exchange", "prompt_layers"),
)
"""Parts whose factor an engine has of its own, those in one group together."""
_OWN_SPREAD = 0.3
_PROMPT = {
    "prompt_products": (1.2, 0.4),
    "prompt_experts": (3.0, 0.5),
    "prompt_attention": (2.0, 0.5),
    "prompt_exchange": (2.0, 0.5),
    "prompt_layers": (100.0, 0.8),
}
_FIRST = {
    "constant": (20.0, 0.8),
    "layers": (100.0, 0.8),
    "step": (1.0, 0.8),
    "wave": (0.1, 0.8),
    "queue": (0.5, 0.8),
    "burst": (0.05, 0.8),
    "scheduling": (20.0, 0.8),
    "full": (0.5, 0.4),
}
_FIRST_OWN = (("constant", "layers", "step"), PROMPT)
"""As ``_OWN``, of the wait for the first token."""
_MODES = ("aggregated", "disaggregated")
_SHARED = (0.35, 0.85)
"""Share and exponent of the sequences of one decoding machine; see :class:`Engine`.

Fitted to deployments that state it they would be (0.21, 1.14), which misses those that do not by 58 % instead of 32 %.
"""
_NOISE_STEP, _NOISE_FIRST = 0.12, 0.3
"""How far rows are off by themselves, as logarithms."""
_GROUP_ROWS = 40
"""A group of rows of one model and engine counts for no more than so many."""


def fit_engine(predictor: Predictor, rows: Sequence[Deployment]) -> Engine:
    """Return the constants that fit measured rows.

    Args:
        predictor: Knows GPUs and models.
        rows: A request, its milliseconds between tokens, and to the first one where that was measured.
    """
    blank = Engine(
        step={name: middle for name, (middle, _) in _STEP.items()},
        engines={},
        shared=_SHARED,
        prompt={},
        first={},
        unstated={},
        stream={},
    )
    found = [
        (request, predictor.hardware.find(request.gpu), predictor.shapes.of(request), tpot, ttft)
        for request, tpot, ttft in rows
    ]
    terms = [step_terms(request, gpu, shape, blank)[0] for request, gpu, shape, _, _ in found]
    names = list(_STEP)
    ideal = 1e3 * np.array([[each[name] for name in names] for each in terms])
    backends = sorted({request.backend or "" for request, *_ in found})
    which = np.array([backends.index(request.backend or "") for request, *_ in found])
    weights = _weights([(shape.name, request.backend) for request, _, shape, _, _ in found])
    target = np.log([tpot for *_, tpot, _ in found])
    group = np.array([next((at for at, own in enumerate(_OWN) if name in own), -1) for name in names])
    width = len(names)

    def parts_at(point: Array) -> Array:
        factors = np.exp(point[width:]).reshape(len(backends), len(_OWN))
        own = np.where(group[None, :] >= 0, factors[which][:, group], 1.0)
        return ideal * np.exp(point[:width]) * own

    def misses(point: Array) -> Array:
        return weights * (np.log(parts_at(point).sum(1)) - target) / _NOISE_STEP

    def slopes(point: Array) -> Array:
        parts = parts_at(point)
        shares = parts / parts.sum(1, keepdims=True)
        own = np.zeros((len(ideal), len(backends), len(_OWN)))
        for at in range(len(_OWN)):
            own[np.arange(len(ideal)), which, at] = shares[:, group == at].sum(1)
        return weights[:, None] * np.hstack([shares, own.reshape(len(ideal), -1)]) / _NOISE_STEP

    middle = np.concatenate([np.log([_STEP[name][0] for name in names]), np.zeros(len(backends) * len(_OWN))])
    spread = np.concatenate([[_STEP[name][1] for name in names], np.full(len(backends) * len(_OWN), _OWN_SPREAD)])
    point = _solve(misses, slopes, middle, spread / 2)
    factors = np.exp(point[width:]).reshape(len(backends), len(_OWN))
    engine = replace(
        blank,
        step=dict(zip(names, map(_short, np.exp(point[:width])), strict=True)),
        engines={
            name: {part: _short(factors[at, own]) for own, parts in enumerate(_OWN) for part in parts}
            for at, name in enumerate(backends)
            if name
        },
    )
    return _fit_first(engine, found)


_STREAM = {
    "layer": (60e-6, 1.0),
    "step": (1e-3, 1.0),
    "weights": (1.5, 0.5),
    "products": (2.5, 0.7),
    "narrow": (1000.0, 1.0),
    "narrow_power": (1.0, 0.3),
    "attention": (4.0, 1.0),
    "tile": (32.0, 0.7),
}
"""Constants of :func:`provision.predict.serving.prompt_seconds`, as ``_STEP``."""
_STREAM_GROUP_ROWS = 100
_STREAM_PARTS = 5


def fit_stream(predictor: Predictor, rows: Sequence[tuple[PredictRequest, float]]) -> dict[str, float]:
    """Return the constants of one stream that reads a prompt, and the 80 % interval of GPUs that were left out.

    Args:
        predictor: Knows GPUs and models.
        rows: Requests with ``input_tokens`` and ``weight_bytes``, and their tokens a second.
    """
    found = [(request, predictor.hardware.find(request.gpu), predictor.shapes.of(request)) for request, _ in rows]
    target = np.log([value for _, value in rows])
    chips = np.array([gpu.id.split("-")[0] for _, gpu, _ in found])

    def seconds(point: Array, members: Array) -> Array:
        stream = dict(zip(_STREAM, np.exp(point), strict=True))
        return np.array(
            [
                prompt_seconds(request.input_tokens or 1, request.weight_bytes or 1.0, gpu, shape, stream)
                / (request.input_tokens or 1)
                for request, gpu, shape in (found[index] for index in members)
            ]
        )

    def fit(members: Array) -> Array:
        from scipy.optimize import least_squares

        _, which, counts = np.unique(chips[members], return_inverse=True, return_counts=True)
        weights = np.sqrt(np.minimum(1.0, _STREAM_GROUP_ROWS / counts))[which]
        middle = np.log([value for value, _ in _STREAM.values()])
        spread = np.array([value for _, value in _STREAM.values()])
        return least_squares(
            lambda at: np.concatenate(
                [weights * (-np.log(seconds(at, members)) - target[members]) / 0.25, (at - middle) / spread]
            ),
            middle,
            loss="soft_l1",
            max_nfev=30,
        ).x

    every = np.arange(len(rows))
    # A few parts of the GPUs, each left out once, tell how far one is off that nobody has measured.
    names = sorted(set(chips))
    part = np.array([names.index(name) % _STREAM_PARTS for name in chips])
    misses = np.concatenate(
        [
            target[every[part == out]] + np.log(seconds(fit(every[part != out]), every[part == out]))
            for out in range(_STREAM_PARTS)
        ]
    )
    low, high = np.quantile(misses, [0.1, 0.9])
    return {
        **dict(zip(_STREAM, map(_short, np.exp(fit(every))), strict=True)),
        "low": _short(low),
        "high": _short(high),
        "missed_percent": _short(100 * float(np.median(np.abs(np.exp(-misses) - 1)))),
        "missed_p90_percent": _short(100 * float(np.quantile(np.abs(np.exp(-misses) - 1), 0.9))),
    }


def fit_unstated(
    predictor: Predictor, engine: Engine, stated: Sequence[Deployment], others: Sequence[Deployment]
) -> dict[str, float]:
    """Return how much wider an interval is where nobody says how many machines there are: half of it, in logarithms.

    Args:
        predictor: Knows GPUs and models.
        engine: Its constants, fitted to ``stated``.
        stated: Deployments that say how many machines decode.
        others: Deployments that do not.
    """
    predictor.engine = engine

    def spread(rows: Sequence[Deployment], metric: str) -> float:
        misses = [
            abs(float(np.log(value)) - predictor.signal(replace(request, metric=metric)).physics)
            for request, between, first in rows
            if (value := between if metric == "tpot" else first) and request.is_disaggregated
        ]
        return float(np.quantile(misses, 0.8)) if misses else 0.0

    return {
        metric: _short(np.sqrt(max(0.0, spread(others, metric) ** 2 - spread(stated, metric) ** 2)))
        for metric in ("tpot", "ttft")
    }


def _fit_first(engine: Engine, found: Sequence[Any]) -> Engine:
    """Return the engine with the constants of the wait for the first token."""
    mine = [row for row in found if row[4]]
    each = [first_terms(request, gpu, shape, engine) for request, gpu, shape, _, _ in mine]
    terms = {name: np.array([row[name] for row in each]) for name in each[0]}
    target = np.log([row[4] for row in mine])
    weights = _weights([(row[2].name, row[0].backend, row[0].is_disaggregated) for row in mine])
    backends = sorted({row[0].backend or "" for row in mine})
    which = np.array([backends.index(row[0].backend or "") for row in mine])
    mode = np.array([int(row[0].is_disaggregated) for row in mine])
    parts, own = len(_PROMPT), len(backends) * len(_FIRST_OWN)
    middle = np.log([value for value, _ in [*_PROMPT.values(), *_FIRST.values(), *_FIRST.values()]])
    middle = np.concatenate([middle, np.zeros(own)])
    spread = np.array([value for _, value in [*_PROMPT.values(), *_FIRST.values(), *_FIRST.values()]])
    spread = np.concatenate([spread, np.full(own, _OWN_SPREAD)])

    def factors_at(point: Array) -> dict[str, Array]:
        values = np.exp(point)
        modes = values[parts : parts + 2 * len(_FIRST)].reshape(2, -1)
        factors = {name: np.full(len(mine), values[at]) for at, name in enumerate(_PROMPT)}
        factors |= {name: modes[mode, at] for at, name in enumerate(_FIRST)}
        engines = values[-own:].reshape(len(backends), -1)
        return {
            name: value * next((engines[which, at] for at, names in enumerate(_FIRST_OWN) if name in names), 1.0)
            for name, value in factors.items()
        }

    def misses(point: Array) -> Array:
        wait = sum(first_parts(terms, factors_at(point)).values())
        return weights * (np.log(1e3 * wait) - target) / _NOISE_FIRST

    point = _solve(misses, None, middle, spread)
    values = np.exp(point)
    engines = values[-own:].reshape(len(backends), -1)
    return replace(
        engine,
        prompt={name: _short(values[at]) for at, name in enumerate(_PROMPT)},
        first={
            kind: {name: _short(values[parts + at * len(_FIRST) + index]) for index, name in enumerate(_FIRST)}
            for at, kind in enumerate(_MODES)
        },
        engines={
            name: {
                **engine.engines.get(name, {}),
                **{
                    f"first_{part}": _short(engines[at, index])
                    for index, names in enumerate(_FIRST_OWN)
                    for part in names
                },
            }
            for at, name in enumerate(backends)
            if name
        },
    )


def _solve(misses: Any, slopes: Any, middle: Array, spread: Array) -> Array:
    from scipy.optimize import least_squares

    def all_misses(point: Array) -> Array:
        return np.concatenate([misses(point), (point - middle) / spread])

    def all_slopes(point: Array) -> Array:
        return np.vstack([slopes(point), np.diag(1 / spread)])

    return least_squares(all_misses, middle, all_slopes if slopes else "2-point", loss="soft_l1", max_nfev=60).x


def _weights(groups: Sequence[Any]) -> Array:
    names = [str(group) for group in groups]
    _, which, counts = np.unique(names, return_inverse=True, return_counts=True)
    return np.sqrt(np.minimum(1.0, _GROUP_ROWS / counts))[which]


def _short(value: float) -> float:
    return float(f"{float(value):.4g}")
