"""What a forecast must beat: the articles' formula, and one utilisation for everything."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

from provision.predict.regression import Regression
from provision.predict.signal import Signal

BASELINES = ("seed", "constant")


class Baseline:
    """Both baselines of one kind of run.

    Args:
        seed: α, β, γ, δ of ``T = α·batch + β·log(model size) + γ·GPUs + δ``.
        constant: Logarithm of one utilisation of the hardware's ceilings.
        is_in_sample: They were fitted to the very rows that they are judged by, which flatters them.
    """

    def __init__(self, seed: Sequence[float], constant: float, *, is_in_sample: bool = False) -> None:
        self._seed = tuple(seed)
        self._constant = constant
        self.is_in_sample = is_in_sample

    @classmethod
    def of(cls, model: Regression) -> Baseline:
        """Return the baselines that were fitted to the table a model was learnt from."""
        fitted = model.document["baselines"]
        return cls(fitted["seed"], fitted["constant"])

    @classmethod
    def fit(cls, rows: Sequence[tuple[Signal, float]]) -> Baseline:
        """Fit both to measured rows, where no model may be shipped that brings them."""
        residuals = sorted(log(value) - signal.physics for signal, value in rows)
        points = [((signal.batch, log(signal.size), signal.gpus, 1.0), value) for signal, value in rows]
        return cls(_least_squares(points), residuals[len(residuals) // 2], is_in_sample=True)

    def predict(self, name: str, signal: Signal) -> float:
        """Return a value in the signal's unit; the articles' formula may answer one below zero.

        Args:
            name: One of ``BASELINES``.
            signal: The run.
        """
        if name == "constant":
            return exp(signal.physics + self._constant)
        batch, size, gpus, rest = self._seed
        return batch * signal.batch + size * log(signal.size) + gpus * signal.gpus + rest


def _least_squares(points: Sequence[tuple[tuple[float, ...], float]]) -> list[float]:
    """Solve the normal equations, lightly damped so that a constant column does no harm."""
    width = len(points[0][0])
    scale = [max(abs(row[index]) for row, _ in points) or 1.0 for index in range(width)]
    matrix = [[0.0] * (width + 1) for _ in range(width)]
    for row, value in points:
        scaled = [cell / unit for cell, unit in zip(row, scale, strict=True)]
        for i in range(width):
            for j in range(width):
                matrix[i][j] += scaled[i] * scaled[j]
            matrix[i][width] += scaled[i] * value
    for i in range(width):
        matrix[i][i] += 1e-9 * len(points)
    for i in range(width):
        pivot = max(range(i, width), key=[abs(line[i]) for line in matrix].__getitem__)
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for j in range(width):
            if j != i:
                factor = matrix[j][i] / matrix[i][i]
                matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i], strict=True)]
    return [matrix[i][width] / matrix[i][i] / scale[i] for i in range(width)]
