"""What one run looks like to a regression."""

from __future__ import annotations

from collections.abc import Mapping

from provision.records import record

__all__ = ["Signal"]


@record
class Signal:
    """The physics of one run and what is learnt on top of it.

    ``physics`` is the natural logarithm of the value that the hardware's ceilings alone would give, in ``unit``.
    ``keys`` names what may have an offset of its own (``gpu``, ``model``). ``size``, ``batch`` and ``gpus`` feed the
    articles' formula. ``higher_is_better`` is False for times.
    """

    physics: float
    features: Mapping[str, float]
    keys: Mapping[str, str]
    unit: str
    size: float
    batch: float
    gpus: float
    higher_is_better: bool = True
    notes: tuple[str, ...] = ()
