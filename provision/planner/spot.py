"""What instances that are taken back cost in time, and how often to save because of it."""

from __future__ import annotations

import math

from provision.errors import DataError, UsageError
from provision.records import record

_LARGEST_EXPONENT = 700.0


@record
class Interruption:
    """What interruptions do to one job. Times in hours.

    Attributes:
        mtbf_hours: Mean time between interruptions of the whole job.
        checkpoint_hours: Time to write one checkpoint.
        restart_hours: Time from an interruption to work again.
        interval_hours: Work between two checkpoints; absent where nothing is saved.
        factor: Expected time over the time of the work alone; infinite where the job never ends.
        interruptions: Expected number of them until the end.
    """

    mtbf_hours: float
    checkpoint_hours: float
    restart_hours: float
    interval_hours: float | None
    factor: float
    interruptions: float


def young_interval(checkpoint_hours: float, mtbf_hours: float) -> float:
    """Return the work between two checkpoints, to first order, in hours.

    Source: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974).
    """
    _check(checkpoint_hours, mtbf_hours)
    # One root each: the product of two small numbers may be too small for a float, and the interval then 0.
    return math.sqrt(2 * mtbf_hours) * math.sqrt(checkpoint_hours)


def daly_interval(checkpoint_hours: float, mtbf_hours: float) -> float:
    """Return the work between two checkpoints that loses least, in hours.

    Args:
        checkpoint_hours: Time to write one, above 0.
        mtbf_hours: Mean time between interruptions of the job, above 0.

    Raises:
        UsageError: A time that is none.

    Source: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006),
    equation 37.
    """
    _check(checkpoint_hours, mtbf_hours)
    if checkpoint_hours >= 2 * mtbf_hours:
        return mtbf_hours
    share = checkpoint_hours / (2 * mtbf_hours)
    return young_interval(checkpoint_hours, mtbf_hours) * (1 + math.sqrt(share) / 3 + share / 9) - checkpoint_hours


def expected_hours(
    work_hours: float, *, mtbf_hours: float, checkpoint_hours: float, restart_hours: float, interval_hours: float | None
) -> float:
    """Return the time a job takes with interruptions at random, in hours; infinite where it practically never ends.

    Args:
        work_hours: Time of the work alone, at least 0.
        mtbf_hours: Mean time between interruptions.
        checkpoint_hours: Time to write one checkpoint.
        restart_hours: Time from an interruption to work again.
        interval_hours: Work between two checkpoints; without one nothing is saved and all begins again.

    Source: Daly 2006, equation 20; without checkpoints the same with the whole job as one interval.
    """
    _check(checkpoint_hours, mtbf_hours)
    if work_hours <= 0:
        return 0.0
    saved = 0.0 if interval_hours is None else checkpoint_hours
    interval = work_hours if interval_hours is None else min(interval_hours, work_hours)
    if interval == 0:
        # What is saved all the time loses nothing but restarts.
        return work_hours * math.exp(min(restart_hours / mtbf_hours, _LARGEST_EXPONENT))
    exponent = (interval + saved) / mtbf_hours
    if max(exponent, restart_hours / mtbf_hours) > _LARGEST_EXPONENT:
        return math.inf
    return mtbf_hours * math.exp(restart_hours / mtbf_hours) * math.expm1(exponent) * work_hours / interval


def mtbf_of_bin(label: str, hours_per_month: float) -> float | None:
    """Return the mean time between interruptions of an instance, in hours, from the share taken back in a month.

    Args:
        label: ``<5%``, ``5-10%`` or ``>20%``; the upper end counts.
        hours_per_month: Length of a month.

    Returns:
        ``None`` for a share without an upper end.

    Raises:
        DataError: The label is none of these.
    """
    text = label.removesuffix("%")
    if text.startswith(">"):
        return None
    try:
        percent = float(text.removeprefix("<").rpartition("-")[2])
    except ValueError as error:
        raise DataError(f"`{label}` is not a share of interruptions") from error
    if not 0 < percent < 100:
        raise DataError(f"`{label}` is not a share of interruptions")
    # Interruptions at random: the share that survives a month is exp(-month / mtbf).
    return -hours_per_month / math.log1p(-percent / 100)


def interrupt(
    work_hours: float,
    *,
    mtbf_hours: float,
    checkpoint_hours: float,
    restart_hours: float,
    has_checkpoints: bool = True,
) -> Interruption:
    """Return what interruptions do to a job that saves at the best interval, or not at all."""
    interval = daly_interval(checkpoint_hours, mtbf_hours) if has_checkpoints else None
    total = expected_hours(
        work_hours,
        mtbf_hours=mtbf_hours,
        checkpoint_hours=checkpoint_hours,
        restart_hours=restart_hours,
        interval_hours=interval,
    )
    return Interruption(
        mtbf_hours=mtbf_hours,
        checkpoint_hours=checkpoint_hours,
        restart_hours=restart_hours,
        interval_hours=interval,
        factor=total / work_hours if work_hours > 0 else 1.0,
        interruptions=total / mtbf_hours,
    )


def _check(checkpoint_hours: float, mtbf_hours: float) -> None:
    if not (mtbf_hours > 0 and math.isfinite(mtbf_hours)):
        raise UsageError(f"a mean time between interruptions of {mtbf_hours:g} h makes no sense")
    if not (checkpoint_hours >= 0 and math.isfinite(checkpoint_hours)):
        raise UsageError(f"a checkpoint of {checkpoint_hours:g} h makes no sense")
