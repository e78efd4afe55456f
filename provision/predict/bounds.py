"""Keeps a forecast on the possible side of what the hardware could do at best."""

from __future__ import annotations

from math import log, sqrt

from provision.predict.regression import Estimate
from provision.predict.signal import Signal
from provision.records import replace

_SLACK = 1e-9


def is_beyond(signal: Signal, value: float) -> bool:
    """Tell whether a value, as a natural logarithm, is better than the ceilings of the hardware allow."""
    if signal.bound is None:
        return False
    return (value > signal.bound + _SLACK) if signal.higher_is_better else (value < signal.bound - _SLACK)


def clip(signal: Signal, low: float, middle: float, high: float) -> tuple[float, float, float]:
    """Return an interval and its middle, in logarithms, without the part that the ceilings exclude."""
    if signal.bound is None:
        return low, middle, high
    limit = min if signal.higher_is_better else max
    return limit(low, signal.bound), limit(middle, signal.bound), limit(high, signal.bound)


def widen(estimate: Estimate, shift: float, doubt: float) -> Estimate:
    """Return an estimate moved and widened, in logarithms, by what is not known of the run.

    Args:
        estimate: What is known.
        shift: Added to its middle.
        doubt: Half width of the 80 % interval of what is not known; independent of the estimate's own.
    """
    middle = estimate.middle + shift
    low = middle - sqrt((estimate.middle - estimate.low) ** 2 + doubt**2)
    high = middle + sqrt((estimate.high - estimate.middle) ** 2 + doubt**2)
    return replace(estimate, middle=middle, low=low, high=high)


def hold(signal: Signal, estimate: Estimate, shares: tuple[float, float]) -> tuple[Estimate, bool]:
    """Return an estimate that does not beat the ceilings, and whether it had to be given up for them.

    Where only a part of the interval is impossible, that part is left out. Where the middle itself is, what was learnt
    does not hold for this run, and nothing of it is kept: the ceiling is the best end of the interval, and shares of
    it that real runs reach are its middle and its worst end.

    Args:
        signal: The run.
        estimate: What was learnt says.
        shares: Of the ceiling, from 0 to 1: what slow runs reach, and what good ones do.

    Source: Williams, Waterman, Patterson 2009 (roofline).
    """
    if signal.bound is None:
        return estimate, False
    if not is_beyond(signal, estimate.middle):
        low, middle, high = clip(signal, estimate.low, estimate.middle, estimate.high)
        return replace(estimate, low=low, middle=middle, high=high), False
    sign = 1.0 if signal.higher_is_better else -1.0
    slow, good = (signal.bound + sign * log(share) for share in shares)
    low, high = sorted((signal.bound, slow))
    return Estimate(middle=good, low=low, high=high, known=(), outside=estimate.outside), True
