"""Speeds of networks whose operations nobody stated: what a measured run of one says of another run of it."""

from __future__ import annotations

from math import log

from provision.errors import UnknownError
from provision.predict.hardware import Hardware
from provision.predict.request import PredictRequest
from provision.predict.signal import Signal

__all__ = ["describe"]

_FULL_BATCH = 8.0
"""Samples at which a GPU is half busy."""
_SCALING = 0.95
"""Share of ideal that each doubling of GPUs in one machine keeps; what Lambda's published runs have in the median."""


def describe(request: PredictRequest, hardware: Hardware) -> Signal:
    """Return how fast one run is in relation to others of the same network; the scale is arbitrary.

    Args:
        request: With ``model``, ``gpus`` and ``batch``. A GPU that is not known stands only for itself.
        hardware: Looks the GPU up.
    """
    try:
        accelerator = hardware.find(request.gpu)
        board, ceiling = accelerator.id, 0.5 * log(accelerator.tensor_flop_s * accelerator.memory_bytes_s)
    except UnknownError:
        board, ceiling = f"unknown {request.gpu.lower()}", 0.0
    batch = request.batch or _FULL_BATCH
    gpus = log(request.gpus) * (1 + log(_SCALING) / log(2))
    return Signal(
        physics=ceiling + gpus + log(batch / (batch + _FULL_BATCH)),
        features={},
        keys={"gpu": board, "model": request.model or ""},
        unit="samples/s",
        size=1.0,
        batch=batch,
        gpus=request.gpus,
    )
