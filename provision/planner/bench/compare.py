"""Two results side by side: what became slower, and whether that is more than noise."""

from __future__ import annotations

from math import sqrt

from provision.errors import UsageError
from provision.planner.bench.results import Figure, Results
from provision.records import record

__all__ = ["Comparison", "Difference", "compare"]

_SIGMAS = 3.0
_HIDES = 0.5
_REPEATS_COUNTED = 10
_TOLD = ("gpu", "driver", "torch", "cuda", "cudnn", "device", "power_limit_w", "cpus")


@record
class Difference:
    """One case in both results.

    ``ratio`` is the new rate over the old one. ``limit`` is how far it may be from 1 before it counts: the tolerance,
    or three times the noise of both medians, whichever is more. ``verdict`` is ``same``, ``slower``, ``faster``,
    ``unsure`` where noise would hide a halving, ``gone``, ``new``, or ``unknown`` where one of the two has no figure.
    """

    id: str
    verdict: str
    ratio: float | None = None
    limit: float | None = None
    old_seconds: float | None = None
    new_seconds: float | None = None
    reason: str | None = None


@record
class Comparison:
    """All cases of two results, and in what their machines differ."""

    differences: tuple[Difference, ...]
    machines: tuple[str, ...]

    @property
    def slower(self) -> tuple[Difference, ...]:
        """Cases that became slower beyond noise."""
        return tuple(row for row in self.differences if row.verdict == "slower")

    @property
    def is_worse(self) -> bool:
        """Tell whether a case became slower, or has no figure any more."""
        return any(row.verdict in {"slower", "gone", "unknown"} for row in self.differences)


def compare(old: Results, new: Results, tolerance: float) -> Comparison:
    """Compare two results case by case, in the order of the old one.

    Args:
        old: The baseline.
        new: What is judged.
        tolerance: Share by which a rate may differ in any case.

    Raises:
        UsageError: The two have no case in common.
    """
    before = {figure.id: figure for figure in old.figures}
    after = {figure.id: figure for figure in new.figures}
    if not before.keys() & after.keys():
        raise UsageError(
            "the two results have no case in common",
            because=(f"the first has {len(before)}, the second {len(after)}",),
            hints=("run the same suite on the same kind of device",),
        )
    rows = [_judge(figure, after.get(name), tolerance) for name, figure in before.items()]
    rows += [Difference(id=name, verdict="new") for name in after if name not in before]
    machines = tuple(
        f"{key.replace('_', ' ')}: {old.machine.get(key)} → {new.machine.get(key)}"
        for key in _TOLD
        if old.machine.get(key) != new.machine.get(key)
    )
    return Comparison(differences=tuple(rows), machines=machines)


def _judge(old: Figure, new: Figure | None, tolerance: float) -> Difference:
    if new is None:
        return Difference(id=old.id, verdict="gone", old_seconds=old.seconds)
    if old.status != "ok":
        return Difference(id=old.id, verdict="new" if new.status == "ok" else "same", reason=old.reason)
    if new.status != "ok" or not new.seconds or not old.seconds:
        return Difference(id=old.id, verdict="unknown", old_seconds=old.seconds, reason=new.reason or new.status)
    ratio = old.seconds / new.seconds
    limit = max(tolerance, _SIGMAS * sqrt(_variance(old) + _variance(new)))
    if limit >= _HIDES:
        verdict = "unsure"
    else:
        verdict = "slower" if ratio < 1 - limit else "faster" if ratio > 1 / (1 - limit) else "same"
    reason = f"throttled: {', '.join(new.throttled)}" if new.throttled else None
    return Difference(
        id=old.id,
        verdict=verdict,
        ratio=ratio,
        limit=limit,
        old_seconds=old.seconds,
        new_seconds=new.seconds,
        reason=reason,
    )


def _variance(figure: Figure) -> float:
    """Return the relative variance of a median; clocks drift in ways that more repetitions do not average out."""
    return figure.noise**2 / max(1, min(figure.repeats, _REPEATS_COUNTED))
