"""Results side by side: what became slower than a baseline, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import log, pi, sqrt
from statistics import NormalDist

from provision.bench.results import Figure, Results, median
from provision.errors import UsageError
from provision.records import NOTHING, record, replace

_SIGMAS = 3.0
_FALSE_ALARMS = 0.05
"""Share of comparisons of equal environments in which any case may be called slower."""
_HIDES = 0.5
_REACH = 9.0
"""Median absolute deviations beyond which a case does not count for the noise: Mosteller and Tukey's biweight."""
_REPEATS_COUNTED = 10
_PAIRS_LEAST = 3
_KIND_COUNTS = 6
"""Runs that the scatter of a kind counts for beside that of a case."""
_DEVIATION = 1.4826
"""Standard deviation over median absolute deviation, of normal values."""
_TOLD = ("gpu", "driver", "torch", "cuda", "cudnn", "device", "power_limit_w", "cpus")


@record
class Difference:
    """One case in the baseline and in new results.

    ``ratio`` is the new rate over the old one. ``limit`` is how far it may be from 1 before it counts: the tolerance,
    or what noise reaches in one of twenty comparisons of so many cases, at least three deviations. ``verdict`` is
    ``same``, ``slower``, ``faster``, ``unsure`` where noise would hide a halving, ``gone``, ``new``, or ``unknown``
    where one of the two has no figure.
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
    """All cases of a baseline and of new results, and in what the machines differ.

    ``baseline_runs`` is how many results the baseline has; from two on ``run_noise`` tells how far their figures
    scatter, as :func:`run_noise` does.
    """

    differences: tuple[Difference, ...]
    machines: tuple[str, ...]
    baseline_runs: int = 1
    run_noise: Mapping[str, float] = NOTHING

    @property
    def slower(self) -> tuple[Difference, ...]:
        """Cases that became slower beyond noise."""
        return tuple(row for row in self.differences if row.verdict == "slower")

    @property
    def is_worse(self) -> bool:
        """Tell whether a case became slower, or has no figure any more."""
        return any(row.verdict in {"slower", "gone", "unknown"} for row in self.differences)


def compare(baseline: Sequence[Results], new: Results, tolerance: float) -> Comparison:
    """Compare results with a baseline case by case, in the order of the baseline.

    Args:
        baseline: One or more runs of the same kind of machine and environment; of several the median of a case counts,
            and their scatter is noise.
        new: What is judged.
        tolerance: Share by which a rate may differ in any case.

    Raises:
        UsageError: A run of the baseline has no case in common with the new results.
    """
    after = {figure.id: figure for figure in new.figures}
    for results in baseline:
        if not {figure.id for figure in results.figures} & after.keys():
            raise UsageError(
                "the two results have no case in common"
                if len(baseline) == 1
                else "a run of the baseline and the last results have no case in common",
                because=(f"the one has {len(results.figures)} cases, the last {len(after)}",),
                hints=("run the same suite on the same kind of device",),
            )
    before: dict[str, list[Figure]] = {}
    for results in baseline:
        for figure in results.figures:
            before.setdefault(figure.id, []).append(figure)
    noise = run_noise(baseline)
    centres = {name: _centre(figures) for name, figures in before.items()}
    shared = {} if len(baseline) > 1 else _shared_scatter(centres, after)
    sigmas = _sigmas(len(centres.keys() & after.keys()))
    rows = [
        _judge(
            centre,
            after.get(name),
            tolerance,
            sigmas,
            max(_scatter(before[name], noise), shared.get(centre.kind, 0.0)),
        )
        for name, centre in centres.items()
    ]
    rows += [Difference(id=name, verdict="new") for name in after if name not in before]
    machines = tuple(
        f"{key.replace('_', ' ')}: {' → '.join(values)}"
        for key in _TOLD
        if len(values := _changes(results.machine.get(key) for results in (*baseline, new))) > 1
    )
    return Comparison(differences=tuple(rows), machines=machines, baseline_runs=len(baseline), run_noise=dict(noise))


def run_noise(results: Sequence[Results]) -> Mapping[str, float]:
    """Return kind of workload → how far times of a case scatter from run to run, a relative standard deviation.

    Every two runs that have a time of a case give a difference, and the median over all cases of the kind tells the
    deviation, so that one bad run or case does not. A kind with fewer than three differences is taken to be at least
    as noisy as all kinds together: a lone pair may lie close by luck. Kinds that no two runs have a time of are absent.

    Args:
        results: Runs on one machine, in any order.
    """
    times: dict[tuple[str, str], list[float]] = {}
    for run in results:
        for figure in _with_times(run.figures):
            times.setdefault((figure.kind, figure.id), []).append(figure.seconds or 0.0)
    pairs: dict[str, list[float]] = {}
    for (kind, _), seconds in times.items():
        pairs.setdefault(kind, []).extend(_differences(seconds))
    everything = _deviation([value for found in pairs.values() for value in found])
    return {
        kind: _deviation(found) if len(found) >= _PAIRS_LEAST else max(_deviation(found), everything)
        for kind, found in pairs.items()
        if found
    }


def _with_times(figures: Iterable[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure.status == "ok" and figure.seconds]


def _differences(seconds: Sequence[float]) -> list[float]:
    return [abs(log(one / other)) for one, other in combinations(seconds, 2)]


def _deviation(differences: Sequence[float]) -> float:
    """Return the standard deviation of values by their differences, each of which has twice their variance."""
    return _DEVIATION * median(differences) / sqrt(2) if differences else 0.0


def _centre(figures: Sequence[Figure]) -> Figure:
    """Return the figure that stands for the runs of a baseline: its time and its noise are their medians."""
    timed = _with_times(figures)
    if len(timed) < 2:
        return timed[0] if timed else figures[0]
    seconds = median([figure.seconds or 0.0 for figure in timed])
    spread = median([(figure.spread_seconds or 0.0) / (figure.seconds or 1.0) for figure in timed])
    return replace(
        timed[0],
        seconds=seconds,
        spread_seconds=spread * seconds,
        repeats=min(figure.repeats for figure in timed),
    )


def _scatter(figures: Sequence[Figure], noise: Mapping[str, float]) -> float:
    """Return the relative variance that runs add to a difference between the median of some and one more.

    What the kind shows counts like some more runs beside what the case shows itself, which with two runs is nothing yet
    and with a few is often far too little.
    """
    seconds = [figure.seconds or 0.0 for figure in _with_times(figures)]
    kind = noise.get(figures[0].kind, 0.0) ** 2
    if len(seconds) < 2:
        return 2 * kind
    own = len(seconds) - 2
    variance = (_KIND_COUNTS * kind + own * _deviation(_differences(seconds)) ** 2) / (_KIND_COUNTS + own)
    # The median of many values is a little less sure than their mean.
    loss = 1.0 if own == 0 else pi / 2
    return variance * (1 + loss / len(seconds))


def _sigmas(cases: int) -> float:
    """Return how many deviations of its noise a case must fall: three, or more where so many would raise false alarms.

    Source: Šidák's correction for multiple comparisons.
    """
    return max(_SIGMAS, NormalDist().inv_cdf((1 - _FALSE_ALARMS) ** (1 / max(1, cases))))


def _shared_scatter(before: Mapping[str, Figure], after: Mapping[str, Figure]) -> Mapping[str, float]:
    """Return kind → relative variance between two runs, by how the cases of one comparison scatter about their middle.

    A single run of a baseline does not tell how much the next one differs; most cases are the same, and their ratios
    do. A case that changed lies outside and does not count. A kind of its own counts where it is noisier than all.
    """
    ratios: dict[str, list[float]] = {}
    for name, figure in before.items():
        other = after.get(name)
        if other is not None and figure.seconds and other.seconds and figure.status == other.status == "ok":
            ratios.setdefault(figure.kind, []).append(log(figure.seconds / other.seconds))
    everything = _biweight([value for found in ratios.values() for value in found])
    return {
        kind: max(everything, _biweight(found) if len(found) >= _PAIRS_LEAST else 0.0) for kind, found in ratios.items()
    }


def _biweight(values: Sequence[float]) -> float:
    """Return the variance of values, deaf to the few that lie far out, and a little wider where they are few.

    Source: biweight midvariance (Mosteller and Tukey, Data Analysis and Regression, 1977).
    """
    middle = median(values) if values else 0.0
    spread = median([abs(value - middle) for value in values]) if values else 0.0
    if not spread:
        return 0.0
    near = [
        (value - middle, ((value - middle) / (_REACH * spread)) ** 2)
        for value in values
        if abs(value - middle) < _REACH * spread
    ]
    above = sum(distance**2 * (1 - share) ** 4 for distance, share in near)
    below = sum((1 - share) * (1 - 5 * share) for _, share in near)
    count = len(values)
    return count * above / below**2 * (1 + 1.5 / count) ** 2


def _changes(values: Iterable[object]) -> list[str]:
    """Return values as words, each time one differs from the one before."""
    words = [str(value) for value in values]
    return [word for place, word in enumerate(words) if place == 0 or word != words[place - 1]]


def _judge(old: Figure, new: Figure | None, tolerance: float, sigmas: float, scatter: float) -> Difference:
    if new is None:
        return Difference(id=old.id, verdict="gone", old_seconds=old.seconds)
    if old.status != "ok":
        return Difference(id=old.id, verdict="new" if new.status == "ok" else "same", reason=old.reason)
    if new.status != "ok" or not new.seconds or not old.seconds:
        return Difference(id=old.id, verdict="unknown", old_seconds=old.seconds, reason=new.reason or new.status)
    ratio = old.seconds / new.seconds
    limit = max(tolerance, sigmas * sqrt(_variance(old) + _variance(new) + scatter))
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
