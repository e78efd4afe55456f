"""Replay a trace on a fleet: events in order of time, jobs first come, first served.

What is in the model: boot times and what they cost, the least that is billed for a node, the policy's own waiting times
and cool-downs, jobs on several nodes, interruptions with notice, saves by the clock and on notice, restarts. What is
not: a shortage of instances, prices that move, jobs that overtake others, data that has to be moved.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from typing import Any, NoReturn

from provision.errors import UsageError
from provision.fleet.policy import Observation, Policy, State, decide
from provision.fleet.simulate.model import Interruptions, Machines, Outcome
from provision.fleet.simulate.trace import Job, Trace

# What happens first at the same time: who ends makes room for who comes, and the policy sees all of it.
_FINISH, _LOST, _NOTICE, _READY, _ARRIVAL, _STEP = range(6)
_STUCK_STEPS = 5
_STUCK_ROUNDS = 20
_ATTEMPTS_MAX = 1000
_HOUR = 3600.0


class _Node:
    """One instance from its order to its end."""

    __slots__ = ("free", "idle_since", "is_draining", "is_noticed", "is_ready", "number", "ordered", "tasks")

    def __init__(self, number: int, gpus: int, ordered: float) -> None:
        self.number = number
        self.free = gpus
        self.ordered = ordered
        self.idle_since = ordered
        self.is_ready = False
        self.is_noticed = False
        self.is_draining = False
        self.tasks: set[_Task] = set()

    @property
    def takes_jobs(self) -> bool:
        return self.is_ready and not self.is_noticed and not self.is_draining


class _Task:
    """One job on its way."""

    __slots__ = ("attempt", "began", "is_restart", "is_stopping", "job", "left", "nodes", "since", "waited")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.left = job.duration
        self.since = job.arrival
        self.waited = 0.0
        self.began = 0.0
        self.attempt = 0
        self.is_restart = False
        self.is_stopping = False
        self.nodes: list[_Node] = []


class _Fleet:
    """The state of one run."""

    def __init__(self, trace: Trace, machines: Machines, policy: Policy | None, fixed: int, seed: int, unit: str):
        self.trace = trace
        self.machines = machines
        self.policy = policy
        self.seed = seed
        self.unit = unit
        self.now = 0.0
        self.state = State()
        self.events: list[tuple[float, int, int, Any]] = []
        self.sequence = 0
        self.nodes: dict[int, _Node] = {}
        self.ordered = 0
        self.queue: deque[_Task] = deque()
        self.running: set[_Task] = set()
        self.waits: list[float] = []
        self.billed = 0.0
        self.interruptions = 0
        self.lost = 0.0
        self.saving = 0.0
        self.busy_most = 0
        self.series: list[tuple[float, int]] = []
        self.changed = self.moved = 0.0
        self.count()
        for _ in range(fixed):
            node = self.order(boot=0.0)
            node.is_ready = True
        for job in trace.jobs:
            self.push(job.arrival, _ARRIVAL, job)
        if policy is not None:
            self.push(0.0, _STEP, None)

    def push(self, time: float, kind: int, what: Any) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (time, kind, self.sequence, what))

    # Nodes

    def order(self, boot: float) -> _Node:
        node = _Node(self.ordered, self.machines.gpus, self.now)
        self.ordered += 1
        self.nodes[node.number] = node
        if boot > 0:
            self.push(self.now + boot, _READY, node)
        else:
            node.is_ready = True
        spot = self.machines.interruptions
        if spot is not None:
            # Each node has its own, so that what one policy orders does not change what befalls the others.
            life = random.Random(f"{self.seed}/{node.number}").expovariate(1 / spot.mtbf)  # noqa: S311 - no secret
            self.push(self.now + life, _NOTICE, node)
        self.count()
        return node

    def end(self, node: _Node) -> None:
        del self.nodes[node.number]
        self.billed += max(self.now - node.ordered, self.machines.billing_minimum_seconds)
        self.count()

    def count(self) -> None:
        self.changed = self.now
        if self.series and self.series[-1][0] == self.now:
            self.series[-1] = (self.now, len(self.nodes))
        else:
            self.series.append((self.now, len(self.nodes)))

    # Jobs

    def place(self) -> None:
        """Begin jobs in their order as long as the next one fits."""
        while self.queue:
            nodes = self.find_nodes(self.queue[0].job.gpus)
            if not nodes:
                return
            self.begin(self.queue.popleft(), nodes)

    def find_nodes(self, gpus: int) -> list[_Node]:
        size = self.machines.gpus
        if gpus <= size:
            fitting = [node for node in self.nodes.values() if node.takes_jobs and node.free >= gpus]
            # The fullest that fits, so that others get empty.
            return [min(fitting, key=lambda node: (node.free, node.number))] if fitting else []
        free = [node for node in self.nodes.values() if node.takes_jobs and node.free == size]
        wanted = self.machines.nodes_for(gpus)
        return sorted(free, key=lambda node: node.number)[:wanted] if len(free) >= wanted else []

    def begin(self, task: _Task, nodes: list[_Node]) -> None:
        task.waited += self.now - task.since
        task.began = self.now
        task.attempt += 1
        task.is_stopping = False
        task.nodes = nodes
        for node in nodes:
            node.free -= self.share(task)
            node.tasks.add(task)
        self.running.add(task)
        self.moved = self.now
        self.busy_most = max(self.busy_most, sum(1 for node in self.nodes.values() if node.tasks))
        self.changed = self.now
        self.push(self.now + self.wall(task), _FINISH, (task, task.attempt))

    def share(self, task: _Task) -> int:
        """Return the GPUs that a job takes of each of its nodes: one on several has them whole."""
        return task.job.gpus if len(task.nodes) == 1 else self.machines.gpus

    def wall(self, task: _Task) -> float:
        """Return how long a job runs if nothing happens: its work, its saves, its restart."""
        spot = self.machines.interruptions
        if spot is None:
            return task.left
        saves = 0 if spot.interval is None else math.ceil(task.left / spot.interval - 1e-9) - 1
        return task.left + max(saves, 0) * spot.checkpoint + (spot.restart if task.is_restart else 0.0)

    def progress(self, task: _Task, spot: Interruptions) -> tuple[float, float]:
        """Return the work done in this attempt until now, and how much of it is saved, in seconds."""
        time = self.now - task.began - (spot.restart if task.is_restart else 0.0)
        if time <= 0:
            return 0.0, 0.0
        if spot.interval is None:
            return min(time, task.left), 0.0
        rounds = math.floor(time / (spot.interval + spot.checkpoint) + 1e-9)
        rest = time - rounds * (spot.interval + spot.checkpoint)
        saved = rounds * spot.interval
        return min(saved + min(rest, spot.interval), task.left), min(saved, task.left)

    def leave(self, task: _Task) -> None:
        for node in task.nodes:
            node.free += self.share(task)
            node.tasks.discard(task)
            if not node.tasks:
                node.idle_since = self.now
        self.running.discard(task)
        for node in [node for node in task.nodes if node.is_draining and not node.tasks]:
            self.end(node)
        task.nodes = []

    def requeue(self, task: _Task, kept: float, done: float) -> None:
        """Put an interrupted job in front, with what of its work is kept."""
        spent = (self.now - task.began) * task.job.gpus
        self.lost += (done - kept) * task.job.gpus
        self.saving += max(spent - done * task.job.gpus, 0.0)
        self.leave(task)
        task.left -= kept
        task.attempt += 1
        task.is_restart = True
        task.since = self.now
        self.queue.appendleft(task)
        if task.attempt > _ATTEMPTS_MAX:
            raise UsageError(
                f"the job of line {task.job.line} never ends: it was interrupted {_ATTEMPTS_MAX} times",
                hints=("save more often with `--checkpoint-every`, or take instances that stay longer",),
            )

    # Events

    def run(self) -> None:
        jobs = len(self.trace.jobs)
        while len(self.waits) < jobs or self.now < self.trace.end:
            if not self.events:
                if len(self.waits) < jobs:
                    self.refuse()
                self.now = self.trace.end
                break
            time = self.events[0][0]
            if len(self.waits) == jobs and time >= self.trace.end:
                self.now = max(self.now, self.trace.end)
                break
            self.now, kind, _, what = heapq.heappop(self.events)
            (self.on_finish, self.on_lost, self.on_notice, self.on_ready, self.on_arrival, self.on_step)[kind](what)
            if kind != _STEP or not self.events or self.events[0][0] > self.now:
                self.place()
        for node in self.nodes.values():
            # They stay; nobody gives them back here.
            self.billed += self.now - node.ordered

    def on_arrival(self, job: Job) -> None:
        self.moved = self.now
        self.queue.append(_Task(job))

    def on_ready(self, node: _Node) -> None:
        if node.number in self.nodes:
            node.is_ready = True
            node.idle_since = self.now
            self.changed = self.now

    def on_finish(self, what: tuple[_Task, int]) -> None:
        task, attempt = what
        if task.attempt != attempt or task.is_stopping:
            return
        self.saving += max((self.now - task.began - task.left) * task.job.gpus, 0.0)
        self.leave(task)
        self.waits.append(task.waited)
        self.changed = self.moved = self.now

    def on_notice(self, node: _Node) -> None:
        spot = self.machines.interruptions
        if node.number not in self.nodes or spot is None:
            return
        node.is_noticed = True
        self.interruptions += 1
        if spot.is_saved_on_notice:
            for task in sorted(node.tasks, key=lambda task: task.job.line):
                # Nothing is worked on while it is saved, and then the job goes.
                done, _ = self.progress(task, spot)
                if not task.is_stopping and done < task.left:
                    task.is_stopping = True
                    self.push(self.now + spot.checkpoint, _LOST, (task, task.attempt, done))
        # After the jobs that are saved in the very last moment.
        self.push(self.now + spot.warning, _LOST, node)

    def on_lost(self, what: _Node | tuple[_Task, int, float]) -> None:
        if isinstance(what, tuple):
            task, attempt, done = what
            if task.attempt == attempt and task in self.running:
                self.requeue(task, done, done)
            return
        if what.number not in self.nodes:
            return
        spot = self.machines.interruptions
        assert spot is not None  # noqa: S101 - nothing else ends nodes
        for task in sorted(what.tasks, key=lambda task: task.job.line, reverse=True):
            done, saved = self.progress(task, spot)
            self.requeue(task, saved, done)
        if what.number in self.nodes:
            self.end(what)

    def on_step(self, _: None) -> None:
        policy = self.policy
        assert policy is not None  # noqa: S101 - only a policy is asked
        self.place()
        decision = decide(policy, self.state, self.observe(policy))
        self.state = decision.state
        if decision.action == "out":
            self.grow(decision.count, policy)
        elif decision.count:
            self.shrink(decision.count, policy)
        self.push(self.now + self.machines.step_seconds, _STEP, None)
        if self.queue and not self.running and self.is_stuck(policy):
            self.refuse()

    def is_stuck(self, policy: Policy) -> bool:
        """Tell whether every time that the policy waits for is over, or was many times, and nothing came of it.

        It counts from when the next job came: before, there was nothing that the fleet could have changed for.
        """
        waits = self.machines.boot_seconds + _STUCK_STEPS * self.machines.step_seconds
        waits += max(policy.out_after_seconds, policy.out_cooldown_seconds, policy.in_after_seconds)
        rounds = _STUCK_ROUNDS * (waits + policy.in_cooldown_seconds + policy.idle_after_seconds)
        return self.now - max(self.changed, self.queue[0].since) > waits or self.now - self.moved > rounds

    def observe(self, policy: Policy) -> Observation:
        nodes = [node for node in self.nodes.values() if not node.is_draining]
        ready = [node for node in nodes if node.is_ready]
        capacity = len(ready) * self.machines.gpus
        busy = capacity - sum(node.free for node in ready)
        idle = self.idle(policy)
        is_gpus = self.unit == "gpus"
        return Observation(
            time_seconds=self.now,
            nodes=len(ready),
            booting=len(nodes) - len(ready),
            idle=len(idle),
            noticed=sum(1 for node in ready if node.is_noticed),
            utilisation_percent=100.0 * busy / capacity if capacity else None,
            jobs_waiting=sum(task.job.gpus if is_gpus else 1 for task in self.queue),
            jobs_running=sum(task.job.gpus if is_gpus else 1 for task in self.running),
        )

    def idle(self, policy: Policy) -> list[_Node]:
        """Return the nodes that may be given back, longest idle first."""
        found = [
            node
            for node in self.nodes.values()
            if node.takes_jobs and not node.tasks and self.now - node.idle_since >= policy.idle_after_seconds
        ]
        return sorted(found, key=lambda node: (node.idle_since, -node.number))

    def grow(self, count: int, policy: Policy) -> None:
        for node in sorted(self.nodes.values(), key=lambda node: node.number):
            if count and node.is_draining and not node.is_noticed:
                node.is_draining = False
                count -= 1
        for _ in range(min(count, policy.maximum - len(self.nodes))):
            self.order(self.machines.boot_seconds)

    def shrink(self, count: int, policy: Policy) -> None:
        idle = self.idle(policy)[:count]
        for node in idle:
            self.end(node)
        if len(idle) < count and policy.may_drain:
            rest = [node for node in self.nodes.values() if node.takes_jobs]
            rest.sort(key=lambda node: (-node.free, -node.number))
            for node in rest[: count - len(idle)]:
                node.is_draining = True
                if not node.tasks:
                    self.end(node)

    def refuse(self) -> NoReturn:
        task = self.queue[0]
        needs = self.machines.nodes_for(task.job.gpus)
        raise UsageError(
            f"the job of line {task.job.line} waits for ever",
            because=(
                f"it needs {task.job.gpus} GPUs, {needs} nodes at once, and {len(self.nodes)} are there",
                "the policy sees no reason to add more",
            ),
            hints=("count GPUs instead of jobs with `--count gpus`, or raise the policy's `minimum`",),
        )


def simulate(
    trace: Trace,
    machines: Machines,
    *,
    name: str,
    policy: Policy | None = None,
    fixed: int = 0,
    seed: int = 0,
    unit: str = "jobs",
) -> Outcome:
    """Return what came of a fleet on a trace; the same arguments give the same answer.

    Args:
        trace: The load.
        machines: What the nodes are.
        name: Of the fleet.
        policy: Decides how many; the fleet begins with its minimum, booted.
        fixed: So many in place of a policy.
        seed: Decides when spot instances are taken back.
        unit: What a policy by queue counts: ``jobs`` or ``gpus``.

    Raises:
        UsageError: A job fits into no such fleet, or the policy never gives it the nodes it needs.
    """
    most = fixed if policy is None else policy.maximum
    for job in trace.jobs:
        if machines.nodes_for(job.gpus) > most:
            raise UsageError(
                f"the job of line {job.line} fits into no fleet of {most} nodes: it needs {job.gpus} GPUs, "
                f"{machines.nodes_for(job.gpus)} nodes of {machines.gpus}",
                hints=("raise the policy's `maximum`, or take larger nodes",),
            )
    fleet = _Fleet(trace, machines, policy, fixed if policy is None else policy.minimum, seed, unit)
    fleet.run()
    return _sum_up(fleet, name)


def _sum_up(fleet: _Fleet, name: str) -> Outcome:
    waits = sorted(fleet.waits)
    hours = fleet.billed / _HOUR
    counts = [count for _, count in fleet.series] or [0]
    capacity = fleet.billed * fleet.machines.gpus
    return Outcome(
        name=name,
        purchase=fleet.machines.purchase,
        jobs=len(waits),
        end_seconds=fleet.now,
        nodes_least=min(counts),
        nodes_most=max(counts),
        nodes_busy_most=fleet.busy_most,
        node_hours=hours,
        usd=hours * fleet.machines.usd_per_hour,
        queue_mean_seconds=math.fsum(waits) / len(waits),
        queue_p95_seconds=waits[math.ceil(0.95 * len(waits)) - 1],
        queue_max_seconds=waits[-1],
        utilisation_percent=100.0 * fleet.trace.gpu_seconds / capacity if capacity else 0.0,
        interruptions=fleet.interruptions,
        lost_gpu_hours=fleet.lost / _HOUR,
        saving_gpu_hours=fleet.saving / _HOUR,
        series=tuple(fleet.series),
    )


def size_for_peak(trace: Trace, machines: Machines) -> int:
    """Return the nodes with which no job waits."""
    ends: list[tuple[float, int]] = []
    needed = most = 0
    for job in trace.jobs:
        while ends and ends[0][0] <= job.arrival:
            needed -= heapq.heappop(ends)[1]
        nodes = machines.nodes_for(job.gpus)
        needed += nodes
        most = max(most, needed)
        heapq.heappush(ends, (job.arrival + job.duration, nodes))
    # So many are enough where every job has a node of its own; how many are used once they share is then seen.
    shared = simulate(trace, _calm(machines), name="", fixed=most)
    return shared.nodes_busy_most


def size_for_mean(trace: Trace, machines: Machines) -> int:
    """Return the nodes that the work keeps busy in the mean, and as many as the largest job needs."""
    largest = max(machines.nodes_for(job.gpus) for job in trace.jobs)
    span = max(trace.end, *(job.arrival + job.duration for job in trace.jobs))
    return max(math.ceil(trace.gpu_seconds / span / machines.gpus - 1e-9), largest)


def _calm(machines: Machines) -> Machines:
    return Machines(
        gpus=machines.gpus,
        usd_per_hour=machines.usd_per_hour,
        boot_seconds=0.0,
        billing_minimum_seconds=0.0,
        step_seconds=machines.step_seconds,
    )
