"""Which nodes of a fleet may be released now, and what speaks for and against each."""

from __future__ import annotations

from provision.errors import MissingDependencyError
from provision.matrix.load import Matrix
from provision.probe.prometheus import Prometheus
from provision.records import record

VERDICTS = ("release", "ask", "keep", "busy", "unknown")
"""What may be done with a node: give it back, ask its user, leave it; the last two say why nothing is offered."""

_SAMPLED_SECONDS = 1800.0
"""The window that the limit ``idle.samples`` is for."""


@record
class Evidence:
    """What a Prometheus knows of one node; ``None`` is what it does not know.

    Attributes:
        node: Its name.
        is_up: Whether its GPU exporter answers.
        gpus: GPUs that answer now; ``planned`` are those that verify was told of.
        watched: GPUs that were sampled for nearly all of the window.
        idle_gpus: GPUs under the limit on average over the window, on a busy node as well.
        busiest_percent: Mean activity of the busiest GPU over the window; ``peak_percent`` is the highest moment.
        memory_mib: Most memory that programs hold on one GPU now.
        jobs: Pods and jobs of a scheduler that the exporter sees on its GPUs.
        is_held: Its textfile says ``provision_node_hold 1``.
        is_noticed: Its provider takes it away soon.
    """

    node: str
    is_up: bool | None = None
    gpus: int | None = None
    planned: int | None = None
    watched: int = 0
    idle_gpus: int = 0
    busiest_percent: float | None = None
    peak_percent: float | None = None
    memory_mib: float | None = None
    jobs: int = 0
    is_held: bool = False
    is_noticed: bool = False


@record
class IdleLimits:
    """From what on a node is busy, in per cent, and a program holds memory, in MiB."""

    activity_percent: float
    memory_mib: float


@record
class IdleNode:
    """A node with its verdict, one of :data:`VERDICTS`, and the reason."""

    verdict: str
    reason: str
    evidence: Evidence


@record
class IdleReport:
    """Every node that the server knows, those that may be released first, then by name.

    Attributes:
        address: The server.
        asked: When, seconds since the epoch.
        window_seconds: How far back it was looked.
        limits: What the verdicts rest on.
        nodes: The nodes.
    """

    address: str
    asked: float
    window_seconds: float
    limits: IdleLimits
    nodes: tuple[IdleNode, ...]

    def of(self, verdict: str) -> tuple[IdleNode, ...]:
        """Return the nodes with one verdict."""
        return tuple(node for node in self.nodes if node.verdict == verdict)


def judge_node(seen: Evidence, limits: IdleLimits) -> IdleNode:
    """Return whether a node may be released; what is not known never speaks for it."""
    verdict, reason = _judge(seen, limits)
    return IdleNode(verdict=verdict, reason=reason, evidence=seen)


def _judge(seen: Evidence, limits: IdleLimits) -> tuple[str, str]:
    if seen.is_held:
        return "keep", "its textfile says provision_node_hold 1"
    if seen.is_noticed:
        return "keep", "its provider takes it away soon"
    if seen.is_up is False:
        return "unknown", "its GPU exporter does not answer"
    if not seen.gpus:
        return "unknown", "no GPU of it answers"
    if seen.planned is not None and seen.gpus < seen.planned:
        return "unknown", f"{seen.gpus} of {seen.planned} planned GPUs answer"
    if seen.busiest_percent is not None and seen.busiest_percent >= limits.activity_percent:
        return "busy", f"a GPU was {seen.busiest_percent:.0f} % busy on average"
    if seen.busiest_percent is None or seen.watched < seen.gpus:
        return "unknown", f"{seen.watched} of {seen.gpus} GPUs were watched for the whole window"
    if seen.jobs:
        return "ask", f"{seen.jobs} job{'' if seen.jobs == 1 else 's'} on it"
    if seen.memory_mib is None:
        return "unknown", "whether programs hold memory on it is unknown"
    if seen.memory_mib > limits.memory_mib:
        return "ask", f"programs hold {seen.memory_mib:.0f} MiB of a GPU"
    return "release", f"no GPU was over {limits.activity_percent:g} % and no program holds memory"


def find_idle(server: Prometheus, matrix: Matrix, *, window_seconds: float) -> IdleReport:
    """Ask a server for every node and judge them.

    Args:
        server: One that the rules of ``provision fleet rules`` run on.
        matrix: The limits, and how jobs are seen.
        window_seconds: How far back to look.

    Raises:
        MissingDependencyError: The server does not answer, has no time, or knows no node.
    """
    clock = server.ask("vector(time())")
    if not clock or clock[0].last is None:
        raise MissingDependencyError(f"{server.address} tells no time", hints=("is it a Prometheus server?",))
    now = clock[0].last
    window = f"[{max(1, round(window_seconds))}s]"
    needed = matrix.limit("idle.samples") * window_seconds / _SAMPLED_SECONDS
    activity = "gpu:activity:percent"

    def ask(expression: str) -> dict[str, float]:
        found = server.ask(expression, at=now)
        # Two clusters may have a node of one name.
        return {
            "/".join(filter(None, (line.labels.get("cluster"), line.labels["node"]))): line.last
            for line in found
            if "node" in line.labels and line.last is not None
        }

    visible = ask("node:gpu_visible:count")
    up = ask('max by (cluster, node) (up{job="gpu"})')
    planned = ask("max by (cluster, node) (provision_gpu_expected)")
    names = sorted({*visible, *up, *planned})
    if not names:
        raise MissingDependencyError(
            f"{server.address} knows no GPU node",
            because=("it has neither `node:gpu_visible:count` nor `up` of a job called gpu",),
            hints=("let it run the rules of `provision fleet rules`, with the label `node` on every target",),
        )
    busiest = ask(f"max by (cluster, node) (avg_over_time({activity}{window}))")
    limits = IdleLimits(activity_percent=matrix.limit("idle.activity"), memory_mib=matrix.limit("idle.memory-held"))
    idle = ask(f"sum by (cluster, node) (avg_over_time({activity}{window}) < bool {limits.activity_percent:.15g})")
    peak = ask(f"max by (cluster, node) (max_over_time({activity}{window}))")
    watched = ask(f"count by (cluster, node) (count_over_time({activity}{window}) >= {needed:.15g})")
    memory = ask("max by (cluster, node) (gpu:memory_used:mebibytes)")
    jobs = ask(matrix.setting("scaling.toml", "jobs_expression").value or "")
    held = ask("max by (cluster, node) (provision_node_hold)")
    noticed = ask("max by (cluster, node) (provision_spot_notice)")
    judged = [
        judge_node(
            Evidence(
                node=name,
                is_up=bool(up[name]) if name in up else None,
                gpus=_whole(visible.get(name)),
                planned=_whole(planned.get(name)),
                watched=int(watched.get(name, 0)),
                idle_gpus=int(idle.get(name, 0)),
                busiest_percent=busiest.get(name),
                peak_percent=peak.get(name),
                memory_mib=memory.get(name),
                jobs=int(jobs.get(name, 0)),
                is_held=held.get(name) == 1,
                is_noticed=noticed.get(name) == 1,
            ),
            limits,
        )
        for name in names
    ]
    judged.sort(key=lambda node: (VERDICTS.index(node.verdict), node.evidence.node))
    return IdleReport(
        address=server.address, asked=now, window_seconds=window_seconds, limits=limits, nodes=tuple(judged)
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
