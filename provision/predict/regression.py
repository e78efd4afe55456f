"""Evaluates what was learnt: a linear part, small trees and known offsets, from a JSON file, in plain Python.

Training needs scikit-learn and is done by ``tools/train_predict.py``; forecasts need nothing but this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import sqrt
from operator import mul
from pathlib import Path
from typing import Any

from provision.errors import DataError
from provision.records import record

_SCHEMA_VERSION = 1
_LEAF = -1


@record
class Estimate:
    """A forecast in natural logarithms: its middle, its 80 % interval, and what was known beforehand.

    ``known`` names the keys (``model``, ``gpu``) whose own offset was learnt, ``outside`` the features beyond the range
    that was learnt from.
    """

    middle: float
    low: float
    high: float
    known: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


class Regression:
    """One learnt function of named features.

    Args:
        document: The parsed JSON model.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.features: tuple[str, ...] = tuple(document["features"])
        self.document = document
        self._centre: list[float] = document["centre"]
        self._scale: list[float] = document["scale"]
        self._weights: list[float] = document["weights"]
        self._intercept: float = document["intercept"]
        self._low: list[float] = document["low"]
        self._high: list[float] = document["high"]
        self._trees: list[list[list[float]]] = document.get("trees", [])
        self._offsets: Mapping[str, Mapping[str, float]] = document.get("offsets", {})
        self._alike: float = document.get("alike", 0.0)
        self._spread: list[list[float]] = document.get("spread", [])
        self._intervals: Mapping[str, list[float]] = document["intervals"]

    def estimate(self, physics: float, features: Mapping[str, float], keys: Mapping[str, str]) -> Estimate:
        """Return the forecast of one run.

        Args:
            physics: Logarithm of what the ceilings of the hardware alone would give.
            features: One value for every name in ``features``.
            keys: Kind → name of what may have an offset of its own, such as ``{"gpu": "h200-sxm"}``.
        """
        values = [features[name] for name in self.features]
        outside = tuple(
            name
            for name, value, low, high in zip(self.features, values, self._low, self._high, strict=True)
            if not low - 1e-9 <= value <= high + 1e-9
        )
        # Beyond what was learnt from, trees stay flat by nature and the line is held where its range ends plus a
        # quarter of it: extrapolation is what makes regressions answer nonsense.
        held = [
            min(max(value, low - (high - low) / 4), high + (high - low) / 4)
            for value, low, high in zip(values, self._low, self._high, strict=True)
        ]
        middle = physics + self._intercept
        for value, centre, scale, weight in zip(held, self._centre, self._scale, self._weights, strict=True):
            middle += (value - centre) / scale * weight
        for tree in self._trees:
            node = tree[0]
            while node[0] != _LEAF:
                node = tree[int(node[2])] if values[int(node[0])] <= node[1] else tree[int(node[3])]
            middle += node[1]
        known = []
        for kind, offsets in self._offsets.items():
            offset = offsets.get(keys.get(kind, ""))
            if offset is not None:
                middle += offset
                known.append(kind)
        low, high = (side * self._difficulty(held) for side in self.interval(known))
        return Estimate(middle=middle, low=middle + low, high=middle + high, known=tuple(known), outside=outside)

    def _difficulty(self, held: list[float]) -> float:
        """Return how much wider an interval is than where the line is best known."""
        if not self._alike:
            return 1.0
        points = [
            (value - centre) / scale for value, centre, scale in zip(held, self._centre, self._scale, strict=True)
        ]
        total = 0.0
        for row, (point, line) in enumerate(zip(points, self._spread, strict=True)):
            # The lower half of a symmetric matrix: what is off the diagonal counts twice.
            total += point * (2 * sum(map(mul, points[:row], line)) + point * line[row])
        return sqrt(1 + self._alike * max(total, 0.0))

    def interval(self, known: Iterable[str]) -> tuple[float, float]:
        """Return the 80 % interval of a miss, in logarithms, where the offsets of some kinds are known."""
        have = set(known)
        fitting = [
            pair
            for name, pair in self._intervals.items()
            if name not in {"any", "none"} and have.issuperset(name.split("+"))
        ]
        if "+".join(sorted(have)) in self._intervals:
            fitting = [self._intervals["+".join(sorted(have))]]
        # Where more is known than was ever left out together, the narrowest of what is known in part will do.
        low, high = min(fitting or [self._intervals["any"]], key=lambda pair: pair[1] - pair[0])
        return low, high


def read_regression(path: Path) -> Regression:
    """Read one model.

    Raises:
        DataError: The file is missing or is not a model of this version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"the model {path.name} cannot be read", because=(str(error),)) from error
    if not isinstance(document, dict) or document.get("schema_version") != _SCHEMA_VERSION:
        raise DataError(f"{path.name} is not a model of version {_SCHEMA_VERSION}")
    return Regression(document)
