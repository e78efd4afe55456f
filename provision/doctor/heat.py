"""How near a GPU is to slowing itself down."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.nvidia_smi import SmiGpu

__all__ = ["is_hot", "margin_of", "say_heat"]

_MARGIN = "gpu.temp.margin"


def margin_of(gpu: SmiGpu) -> int | None:
    """Return the degrees left to the GPU's own slowdown: as it tells them, else from its absolute threshold."""
    if gpu.temperature_margin_c is not None:
        return gpu.temperature_margin_c
    if gpu.temperature_slowdown_c is None or gpu.temperature_c is None:
        return None
    return gpu.temperature_slowdown_c - gpu.temperature_c


def is_hot(gpu: SmiGpu, matrix: Matrix) -> bool | None:
    """Tell whether a GPU is as hot as its slowdown, within the margin of the facts; ``None`` where it tells neither."""
    margin = margin_of(gpu)
    return None if margin is None else margin <= matrix.limit(_MARGIN)


def say_heat(gpu: SmiGpu) -> str:
    """Return the temperature as the end of a sentence, empty where it is not told."""
    if gpu.temperature_c is None:
        return ""
    margin = margin_of(gpu)
    return f" at {gpu.temperature_c} C" + (f", {margin} C below its own slowdown" if margin is not None else "")
