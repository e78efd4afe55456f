"""One step of scaling: what was seen and a policy become a decision with its reason.

There is no clock, no network and no memory here: whoever calls :func:`decide` keeps the :class:`State`
that a decision hands back and gives it to the next call. The simulator does so over a trace, ``provision fleet policy``
in a file.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from provision.errors import UsageError
from provision.generate.scaling.policy import Policy
from provision.records import record, replace

__all__ = ["ACTIONS", "Decision", "Observation", "Policy", "State", "decide", "measure"]

ACTIONS = ("hold", "out", "release", "in")
"""``release`` gives idle nodes back; ``in`` takes nodes away of which some must be drained first."""

_DUST = 1e-9


@record
class Observation:
    """What is seen of a fleet at one time.

    Attributes:
        time_seconds: Since any epoch; never less than at the step before.
        nodes: That answer, those under notice included. ``booting`` were asked for and do not answer yet.
        idle: Nodes of ``nodes`` that may be given back now: none under notice, none that is held.
        noticed: Nodes of ``nodes`` that their provider takes away soon.
        utilisation_percent: Mean activity of the GPUs of all ``nodes``; ``None`` where it is not known.
        jobs_waiting: In the queue; ``jobs_running`` on nodes. Where jobs differ in size count GPUs in both, and take
            a target in GPUs. ``None`` where it is not known.

    Raises:
        UsageError: A number makes no sense.
    """

    time_seconds: float
    nodes: int
    booting: int = 0
    idle: int = 0
    noticed: int = 0
    utilisation_percent: float | None = None
    jobs_waiting: float | None = None
    jobs_running: float | None = None

    def __post_init__(self) -> None:
        """Check every number."""
        for key in ("time_seconds", "utilisation_percent", "jobs_waiting", "jobs_running"):
            value = getattr(self, key)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"`{key}` {value:g} was never seen", hints=("write a number from 0",))
        if self.utilisation_percent is not None and self.utilisation_percent > 100:
            raise UsageError(
                f"`utilisation_percent` {self.utilisation_percent:g} was never seen",
                hints=("write the mean activity of the GPUs, from 0 to 100",),
            )
        for key in ("nodes", "booting", "idle", "noticed"):
            if getattr(self, key) < 0:
                raise UsageError(f"`{key}` {getattr(self, key)} was never seen", hints=("write a number from 0",))
        if self.idle + self.noticed > self.nodes:
            raise UsageError(
                f"{self.idle} idle and {self.noticed} noticed are more than {self.nodes} nodes",
                because=("a node under notice does not count as idle",),
                hints=("count each node once",),
            )


@record
class State:
    """What one step leaves for the next; all in seconds of the same epoch, ``None`` where it never was.

    Attributes:
        above_since: From when on the level has been over ``out_above`` without a break; ``below_since`` likewise.
        last_out: When nodes were last added; ``last_in`` when they were last taken away.
    """

    above_since: float | None = None
    below_since: float | None = None
    last_out: float | None = None
    last_in: float | None = None


@record
class Decision:
    """What to do now.

    Attributes:
        action: One of :data:`ACTIONS`.
        count: Nodes to add or to take away; 0 for ``hold``.
        wanted: Nodes that the load asks for at the target, before every limit; ``None`` where the load is not known.
        level: The figure that was compared with the thresholds, in the policy's unit, for the nodes that stay.
        reason: Why, one sentence.
        limits: Why not more, a sentence each.
        state: For the next step, as it is once this decision is carried out.
    """

    action: str
    count: int
    wanted: int | None
    level: float | None
    reason: str
    limits: tuple[str, ...]
    state: State


class _Room(NamedTuple):
    """A number of nodes, and the sentences that say what cut it."""

    size: int
    limits: tuple[str, ...] = ()

    def cut(self, most: int, why: str) -> _Room:
        return self if self.size <= most else _Room(max(most, 0), (*self.limits, why))


def measure(policy: Policy, seen: Observation) -> float | None:
    """Return the load in the policy's unit times nodes: what one node would have if it were alone.

    Returns:
        ``None`` where the figure that the policy goes by is not known.
    """
    if policy.metric == "utilisation":
        return None if seen.utilisation_percent is None or not seen.nodes else seen.utilisation_percent * seen.nodes
    if seen.jobs_waiting is None or seen.jobs_running is None:
        return None
    return seen.jobs_waiting + seen.jobs_running


def decide(policy: Policy, state: State, seen: Observation) -> Decision:
    """Return what to do now.

    The maximum counts every node that costs money, those under notice and those that start included; the minimum
    counts those that stay. Both hold without any waiting; all else waits for its time and its cool-down. What is not
    known changes nothing, and starts the waiting anew.
    """
    lost = seen.noticed if policy.handles_spot else 0
    total = seen.nodes + seen.booting
    staying = total - lost
    load = measure(policy, seen)
    level = None if load is None else load / staying if staying else (math.inf if load else 0.0)
    wanted = None if load is None else math.ceil(load / policy.target - _DUST)
    state = _watch(policy, state, level, seen.time_seconds)
    case = _Case(policy, state, seen, total, staying, lost, level, wanted)
    if staying < policy.minimum:
        return case.add(
            policy.minimum - staying, f"there are fewer nodes than the least of {policy.minimum}: {staying}"
        )
    if staying > policy.maximum:
        return case.take(
            staying - policy.maximum,
            f"there are more nodes than the most of {policy.maximum}: {staying}",
            is_forced=True,
        )
    if level is None or wanted is None:
        return case.hold(f"the {_title(policy)} is not known, and on that nothing is changed")
    if lost and wanted > staying:
        return case.add(
            min(wanted - staying, lost), f"{_nodes(lost)} under notice, and the load asks for {_nodes(wanted)}"
        )
    if level > policy.out_above:
        return case.grow()
    if level < policy.in_below:
        return case.shrink()
    return case.hold(
        f"{case.said} lies between {_bound(policy.in_below, policy)} and {_bound(policy.out_above, policy)}"
    )


class _Case(NamedTuple):
    """Everything one step goes by."""

    policy: Policy
    state: State
    seen: Observation
    total: int
    staying: int
    lost: int
    level: float | None
    wanted: int | None

    @property
    def said(self) -> str:
        """The level, in words."""
        level = self.level
        return f"{_title(self.policy)} of {'unknown' if level is None else _figure(level, self.policy)}"

    def hold(self, reason: str, limits: tuple[str, ...] = ()) -> Decision:
        """Change nothing."""
        return self._say("hold", _Room(0, limits), reason, self.state)

    def grow(self) -> Decision:
        """Add nodes where the level was high for long enough."""
        policy, now = self.policy, self.seen.time_seconds
        reason = f"{self.said} is over {_bound(policy.out_above, policy)}"
        waits = _rest(self.state.above_since, policy.out_after_seconds, now)
        if waits > 0:
            return self.hold(f"{reason}, not yet for {_span(policy.out_after_seconds)}", (f"{_span(waits)} are left",))
        waits = _rest(self.state.last_out, policy.out_cooldown_seconds, now)
        if waits > 0:
            return self.hold(f"{reason}, but nodes were added lately", (f"{_span(waits)} of the cool-down are left",))
        more = (self.wanted or 0) - self.staying
        if more <= 0:
            return self.hold(f"{reason}, and the target asks for no more nodes")
        room = _Room(more)
        if policy.out_step is not None:
            room = room.cut(policy.out_step, f"a step adds {_nodes(policy.out_step)} at most")
        return self.add(more, f"{reason}: the load asks for {_nodes(self.wanted or 0)}", room)

    def shrink(self) -> Decision:
        """Take nodes away where the level was low for long enough."""
        policy, now = self.policy, self.seen.time_seconds
        reason = f"{self.said} is under {_bound(policy.in_below, policy)}"
        if self.seen.booting:
            return self.hold(f"{reason}, but there are nodes that start: {self.seen.booting}")
        waits = _rest(self.state.below_since, policy.in_after_seconds, now)
        if waits > 0:
            return self.hold(f"{reason}, not yet for {_span(policy.in_after_seconds)}", (f"{_span(waits)} are left",))
        changes = [when for when in (self.state.last_out, self.state.last_in) if when is not None]
        waits = _rest(max(changes, default=None), policy.in_cooldown_seconds, now)
        if waits > 0:
            return self.hold(f"{reason}, but the fleet changed lately", (f"{_span(waits)} of the cool-down are left",))
        fewer = self.staying - (self.wanted or 0)
        if fewer <= 0:
            return self.hold(f"{reason}, and the target asks for no fewer nodes")
        return self.take(fewer, f"{reason}: the load asks for {_nodes(self.wanted or 0)}")

    def add(self, count: int, reason: str, room: _Room | None = None) -> Decision:
        """Add nodes as far as the maximum lets."""
        room = (room or _Room(count)).cut(
            self.policy.maximum - self.total, f"the most is {_nodes(self.policy.maximum)}, and {self.total} are there"
        )
        if not room.size:
            return self.hold(reason, room.limits)
        state = replace(self.state, above_since=None, below_since=None, last_out=self.seen.time_seconds)
        return self._say("out", room, reason, state)

    def take(self, count: int, reason: str, *, is_forced: bool = False) -> Decision:
        """Take nodes away as far as the minimum, the step and their work let."""
        policy, idle = self.policy, self.seen.idle
        room = _Room(count).cut(self.staying - policy.minimum, f"the least is {_nodes(policy.minimum)}")
        if policy.in_step is not None and not is_forced:
            room = room.cut(policy.in_step, f"a step takes away {_nodes(policy.in_step)} at most")
        if not policy.may_drain:
            room = room.cut(idle, f"idle: {_nodes(idle)}; none with work on it is taken away")
        if not room.size:
            return self.hold(reason, room.limits)
        state = replace(self.state, above_since=None, below_since=None, last_in=self.seen.time_seconds)
        return self._say("release" if room.size <= idle else "in", room, reason, state)

    def _say(self, action: str, room: _Room, reason: str, state: State) -> Decision:
        return Decision(
            action=action,
            count=room.size,
            wanted=self.wanted,
            level=self.level,
            reason=reason,
            limits=room.limits,
            state=state,
        )


def _watch(policy: Policy, state: State, level: float | None, now: float) -> State:
    """Note since when the level has been outside the thresholds."""
    is_above = level is not None and level > policy.out_above
    is_below = level is not None and level < policy.in_below
    return replace(
        state,
        above_since=(now if state.above_since is None else state.above_since) if is_above else None,
        below_since=(now if state.below_since is None else state.below_since) if is_below else None,
    )


def _rest(since: float | None, length: float, now: float) -> float:
    """Return how much of a time is left, in seconds; none of it where it never began."""
    return 0.0 if since is None else since + length - now


def _title(policy: Policy) -> str:
    return "utilisation" if policy.metric == "utilisation" else "queue"


def _figure(value: float, policy: Policy) -> str:
    if math.isinf(value):
        return "jobs and no node"
    return f"{value:.4g} {policy.unit}"


def _bound(value: float, policy: Policy) -> str:
    """Return a threshold; the level before it says what is counted."""
    return f"{value:.4g} %" if policy.metric == "utilisation" else f"{value:.4g}"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _span(seconds: float) -> str:
    return f"{math.ceil(seconds)} s"
