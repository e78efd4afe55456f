"""What a Prometheus knows of a fleet, as one step of a policy takes it.

The server is the memory as well: since when the load has been high or low, and when nodes last came and went, is read
from its past, so that nothing is kept between two calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from provision.errors import MissingDependencyError, UsageError
from provision.fleet.idle import find_idle
from provision.fleet.policy import Observation, Policy, State
from provision.matrix.load import Matrix
from provision.probe.prometheus import Prometheus
from provision.records import record

_STEP_SECONDS = 30.0
_POINTS_MAX = 5000
# A scrape may be late; two that are missing in a row are a gap.
_GAP = 2.5

Points = Sequence[tuple[float, float]]


@record
class Seen:
    """One look at a fleet: the step, what the past leaves for it, and the names of the idle nodes in order."""

    observation: Observation
    state: State
    idle: tuple[str, ...]


def recall(policy: Policy, levels: Points, nodes: Points, step: float) -> State:
    """Return what the past leaves for the next step.

    Args:
        policy: The thresholds.
        levels: (Seconds since the epoch, level in the policy's unit), in order of time; the last one is now.
        nodes: (Seconds since the epoch, number of nodes), likewise.
        step: Seconds between points. Where points are missing nothing is known, and waiting starts anew.
    """
    changes = [(when, after - before) for (_, before), (when, after) in pairwise(nodes)]
    return State(
        above_since=_since([(when, level > policy.out_above) for when, level in levels], step),
        below_since=_since([(when, level < policy.in_below) for when, level in levels], step),
        last_out=max((when for when, change in changes if change > 0), default=None),
        last_in=max((when for when, change in changes if change < 0), default=None),
    )


def _since(points: Sequence[tuple[float, bool]], step: float) -> float | None:
    """Return when the unbroken run of true points began that the last one ends."""
    began: float | None = None
    for when, is_so in reversed(points):
        if not is_so or (began is not None and began - when > _GAP * step):
            break
        began = when
    return began


def observe(server: Prometheus, matrix: Matrix, policy: Policy) -> Seen:
    """Ask a server what the policy needs to know.

    Args:
        server: One that the rules of ``provision fleet rules`` run on.
        matrix: What idle means.
        policy: What is asked for.

    Raises:
        MissingDependencyError: The server does not answer or knows no node.
        UsageError: The policy goes by the queue and names no series for it.
    """
    if policy.metric == "utilisation":
        total = "sum(gpu:activity:percent) / count(gpu:activity:percent) * count(node:gpu_visible:count)"
    else:
        if policy.waiting_expression is None or policy.running_expression is None:
            raise UsageError(
                "the policy does not say where the queue is seen",
                because=("a Prometheus knows a queue only by the series of its scheduler or server",),
                hints=(
                    "write `waiting_expression` and `running_expression` into the policy, "
                    'such as "sum(vllm:num_requests_waiting)"',
                    "or count by hand: `--observe nodes=4,waiting=6,running=4`",
                ),
            )
        total = f"({policy.waiting_expression}) + ({policy.running_expression})"
    report = find_idle(server, matrix, window_seconds=policy.idle_after_seconds or _STEP_SECONDS)
    now = report.asked
    longest = max(
        policy.out_after_seconds,
        policy.in_after_seconds,
        policy.out_cooldown_seconds,
        policy.in_cooldown_seconds,
    )
    step = max(_STEP_SECONDS, longest / _POINTS_MAX)
    start = now - longest - 2 * step

    def ask_span(expression: str) -> Points:
        found = server.ask_span(expression, start=start, end=now, step=step)
        if len(found) > 1:
            raise UsageError(
                f"`{expression[:120]}` is {len(found)} series, and must be one", hints=("wrap it in `sum(…)`",)
            )
        return found[0].points if found else ()

    counts = ask_span("count(node:gpu_visible:count)")
    loads = ask_span(total)
    by_time = dict(counts)
    levels = [(when, load / by_time[when]) for when, load in loads if by_time.get(when)]
    alive = [node for node in report.nodes if node.evidence.gpus]
    count = len(alive)
    if not count and policy.metric == "utilisation":
        raise MissingDependencyError(f"{server.address} knows no GPU that answers")

    def ask_now(expression: str) -> float | None:
        found = server.ask(expression, at=now)
        return found[0].last if len(found) == 1 else None

    is_activity = policy.metric == "utilisation"
    idle = tuple(node.evidence.node for node in alive if node.verdict == "release")
    observation = Observation(
        time_seconds=now,
        nodes=count,
        idle=len(idle),
        noticed=sum(node.evidence.is_noticed for node in alive),
        utilisation_percent=_bounded(ask_now("avg(gpu:activity:percent)")) if is_activity else None,
        jobs_waiting=None if is_activity else ask_now(policy.waiting_expression or ""),
        jobs_running=None if is_activity else ask_now(policy.running_expression or ""),
    )
    return Seen(observation=observation, state=recall(policy, levels, counts, step), idle=idle)


def _bounded(value: float | None) -> float | None:
    """Return a share that rounding may have carried past 100."""
    return None if value is None else min(max(value, 0.0), 100.0)
