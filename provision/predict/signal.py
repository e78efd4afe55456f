"""What one run looks like to a regression."""

from __future__ import annotations

from collections.abc import Mapping

from provision.records import record


@record
class Signal:
    """The physics of one run and what is learnt on top of it.

    ``physics`` is the natural logarithm of the value that the hardware's ceilings alone would give, in ``unit``.
    ``keys`` names what may have an offset of its own (``gpu``, ``model``). ``size``, ``batch`` and ``gpus`` feed the
    articles' formula. ``higher_is_better`` is False for times. ``bound`` is the logarithm of the best value that the
    ceilings allow at all, ``None`` where they are not known. ``doubt`` is half the 80 % interval, in logarithms, of
    what the features do not tell; ``cautions`` say it, one sentence each.
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
    bound: float | None = None
    doubt: float = 0.0
    cautions: tuple[str, ...] = ()
