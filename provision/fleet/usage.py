"""GPU-hours by job, user, account, pod or node: from Slurm's accounting, or from a Prometheus server."""

from __future__ import annotations

import math
from collections.abc import Sequence

from provision.errors import MissingDependencyError, UsageError
from provision.fleet.sacct import SACCT, SacctJob
from provision.probe.prometheus import Prometheus
from provision.records import record

SLURM_KEYS = ("account", "job", "partition", "user")
SERVER_KEYS = {
    "job": ("cluster", "hpc_job"),
    "namespace": ("cluster", "namespace"),
    "node": ("cluster", "node"),
    "pod": ("cluster", "namespace", "pod"),
}
"""What a server can be asked to count by, and the labels that tell one from another."""

_STEP_SECONDS = 300
_HELD = (
    'group by (cluster, node, gpu, namespace, pod, hpc_job) (DCGM_FI_DEV_FB_USED{pod!=""} '
    'or DCGM_FI_DEV_FB_USED{hpc_job!=""})'
)
_THERE = "group by (cluster, node, gpu) (DCGM_FI_DEV_FB_USED)"


@record
class UsageRow:
    """What one of those counted used.

    Attributes:
        name: Of the job, user, account, pod, ...; empty where the source names none.
        jobs: Jobs; ``None`` where they are not counted.
        gpu_hours: Hours for which GPUs were given to it.
        busy_gpu_hours: The same, times how busy they were; ``None`` where nothing tells.
    """

    name: str
    gpu_hours: float
    jobs: int | None = None
    busy_gpu_hours: float | None = None


@record
class Usage:
    """GPU-hours of a time.

    Attributes:
        key: What is counted by.
        hours: How long the time is; ``None`` if unknown.
        gpus: GPUs of the fleet, on average; ``None`` if unknown.
        rows: Most GPU-hours first.
        idle_gpu_hours: Hours for which GPUs of the fleet were given to nobody; ``None`` if unknown.
        without_gpu: Jobs that were given no GPU, which are in no row.
    """

    key: str
    hours: float | None
    gpus: float | None
    rows: tuple[UsageRow, ...]
    idle_gpu_hours: float | None
    without_gpu: int = 0

    @property
    def gpu_hours(self) -> float:
        """All GPU-hours that were given to somebody."""
        return math.fsum(row.gpu_hours for row in self.rows)


def count_usage(jobs: Sequence[SacctJob], key: str, *, gpus: float | None = None, hours: float | None = None) -> Usage:
    """Count the GPU-hours of Slurm's jobs.

    Args:
        jobs: As :func:`provision.fleet.sacct.read_sacct` returns them.
        key: One of :data:`SLURM_KEYS`.
        gpus: GPUs of the cluster, for what was idle.
        hours: The time that the jobs are of; from the first start to the last end unless given.

    Raises:
        UsageError: The jobs do not name ``key``, the time is needed and unknown, or they used more than there was.
    """
    with_gpu = [job for job in jobs if job.gpus]
    if with_gpu and not any(key in job.labels for job in with_gpu):
        raise UsageError(f"the file does not name the {key} of its jobs", hints=(f"write it with `{SACCT}`",))
    counts: dict[str, int] = {}
    seconds: dict[str, list[float]] = {}
    for job in with_gpu:
        name = job.labels.get(key, "")
        counts[name] = counts.get(name, 0) + 1
        seconds.setdefault(name, []).append(job.elapsed * job.gpus)
    rows = [UsageRow(name=name, jobs=counts[name], gpu_hours=math.fsum(seconds[name]) / 3600) for name in counts]
    rows.sort(key=lambda row: (-row.gpu_hours, row.name))
    hours = _span(with_gpu) if hours is None else hours
    idle = None
    if gpus is not None:
        if hours is None:
            raise UsageError(
                "the file does not say when its jobs began and ended, so that idle hours are unknown",
                hints=(f"write it with `{SACCT}`", "or say how long the time was: `--hours 168`"),
            )
        used = math.fsum(row.gpu_hours for row in rows)
        idle = gpus * hours - used
        if idle < -1e-6 * used:
            raise UsageError(
                f"the jobs used {used:.1f} GPU-hours, and --gpus {gpus:g} has {gpus * hours:.1f} in {hours:.1f} hours",
                hints=(
                    "have sacct cut jobs off at the ends of a time, `sacct -T -S START -E END`, and name it by --hours",
                    "or name all GPUs of the cluster: `--gpus N`",
                ),
            )
        idle = max(idle, 0.0)
    return Usage(
        key=key, hours=hours, gpus=gpus, rows=tuple(rows), idle_gpu_hours=idle, without_gpu=len(jobs) - len(with_gpu)
    )


def _span(jobs: Sequence[SacctJob]) -> float | None:
    starts = [job.start for job in jobs if job.start is not None]
    ends = [job.end if job.end is not None else job.start + job.elapsed for job in jobs if job.start is not None]
    return (max(ends) - min(starts)) / 3600 if starts else None


def ask_usage(server: Prometheus, key: str, *, hours: float) -> Usage:
    """Ask a server for the GPU-hours of the last hours, sampled every five minutes.

    dcgm-exporter labels the series of a GPU with the Pod or job that holds it. A GPU that several hold at a time
    (time-slicing, MPS) counts for each of them.

    Args:
        server: One that the rules of ``provision fleet rules`` run on.
        key: One of :data:`SERVER_KEYS`.
        hours: How far back to look.

    Raises:
        MissingDependencyError: The server does not answer, or knows no GPU.
    """
    labels = SERVER_KEYS[key]
    by = ", ".join(labels)

    def count(expression: str, function: str = "count_over_time") -> dict[tuple[str, ...], float]:
        window = f"[{max(1, round(hours * 3600))}s:{_STEP_SECONDS}s]"
        lines = server.ask(f"sum by ({by}) ({function}(({expression}){window}))")
        return {
            tuple(line.labels.get(label, "") for label in labels): line.last * _STEP_SECONDS / 3600
            for line in lines
            if line.last is not None
        }

    there = count(_THERE)
    if not there:
        raise MissingDependencyError(
            f"{server.address} knows no GPU",
            because=("it has no series `DCGM_FI_DEV_FB_USED` of this time",),
            hints=("have it scrape dcgm-exporter with the fields of `provision fleet rules`",),
        )
    held, idle = count(_HELD), count(f"{_THERE} unless on (cluster, node, gpu) {_HELD}")
    busy = count(f"{_HELD} * on (cluster, node, gpu) group_left () (gpu:activity:percent / 100)", "sum_over_time")
    rows = [
        UsageRow(name="/".join(filter(None, name)), gpu_hours=value, busy_gpu_hours=busy.get(name))
        for name, value in held.items()
    ]
    rows.sort(key=lambda row: (-row.gpu_hours, row.name))
    return Usage(
        key=key,
        hours=hours,
        gpus=math.fsum(there.values()) / hours,
        rows=tuple(rows),
        idle_gpu_hours=math.fsum(idle.values()),
    )
