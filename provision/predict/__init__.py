"""How fast a run will be: a forecast with its interval, its mode and what it rests on."""

from __future__ import annotations

from functools import cache

from provision.matrix.load import Matrix
from provision.predict.predictor import Predictor
from provision.predict.request import TASKS, Forecast, PredictRequest

__all__ = ["TASKS", "Forecast", "PredictRequest", "Predictor", "estimate"]


def estimate(request: PredictRequest, matrix: Matrix | None = None) -> Forecast:
    """Return the speed of one run, cold or with what is known of the same model elsewhere.

    Args:
        request: The run.
        matrix: The facts; the shipped ones when absent.

    Raises:
        UnknownError: The GPU, or the model's size, is not known.
        UsageError: The request contradicts itself.
    """
    predictor = _shipped() if matrix is None else Predictor(matrix)
    return predictor.forecast(predictor.describe(request))


@cache
def _shipped() -> Predictor:
    return Predictor(Matrix())
