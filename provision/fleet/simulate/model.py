"""What a simulated fleet is made of, and what came of it."""

from __future__ import annotations

import math

from provision.errors import UsageError
from provision.records import record


@record
class Interruptions:
    """How spot instances are taken back, and what jobs do about it. All in seconds.

    Attributes:
        mtbf: Mean time until one instance is taken back; the times are exponential.
        warning: Between notice and interruption.
        checkpoint: To save a job once.
        restart: Until a job works again after it was started anew.
        interval: Work between two saves by the clock; ``None`` where jobs are saved on a notice alone.

    Raises:
        UsageError: A number makes no sense.
    """

    mtbf: float
    warning: float
    checkpoint: float
    restart: float
    interval: float | None

    def __post_init__(self) -> None:
        """Check every number."""
        if not (self.mtbf > 0 and math.isfinite(self.mtbf)):
            raise UsageError(f"a mean time between interruptions of {self.mtbf:g} s makes no sense")
        for key in ("warning", "checkpoint", "restart"):
            if not (getattr(self, key) >= 0 and math.isfinite(getattr(self, key))):
                raise UsageError(f"a {key} of {getattr(self, key):g} s makes no sense")
        if self.interval is not None and not self.interval > 0:
            raise UsageError(f"a checkpoint every {self.interval:g} s makes no sense")

    @property
    def is_saved_on_notice(self) -> bool:
        """Whether the warning is long enough to save a job."""
        return self.checkpoint <= self.warning


@record
class Machines:
    """The nodes of a fleet, all alike.

    Attributes:
        gpus: Of one node.
        usd_per_hour: Of one node.
        purchase: ``on-demand`` or ``spot``.
        boot_seconds: From the order of a node until it takes jobs; billed.
        billing_minimum_seconds: What a node costs at least.
        step_seconds: How often the policy is asked.
        interruptions: ``None`` where no node is taken back.

    Raises:
        UsageError: A number makes no sense.
    """

    gpus: int
    usd_per_hour: float
    purchase: str = "on-demand"
    boot_seconds: float
    billing_minimum_seconds: float
    step_seconds: float
    interruptions: Interruptions | None = None

    def __post_init__(self) -> None:
        """Check every number."""
        if self.gpus < 1:
            raise UsageError(f"a node of {self.gpus} GPUs makes no sense")
        for key in ("usd_per_hour", "boot_seconds", "billing_minimum_seconds"):
            if not (getattr(self, key) >= 0 and math.isfinite(getattr(self, key))):
                raise UsageError(f"`{key}` {getattr(self, key):g} makes no sense")
        if not (self.step_seconds > 0 and math.isfinite(self.step_seconds)):
            raise UsageError(f"`step_seconds` {self.step_seconds:g} makes no sense")

    def nodes_for(self, gpus: int) -> int:
        """Return how many nodes a job needs."""
        return math.ceil(gpus / self.gpus)


@record
class Outcome:
    """What came of one fleet on one trace.

    Attributes:
        name: Of the policy, or of the fixed fleet.
        purchase: ``on-demand`` or ``spot``.
        jobs: How many were finished, which is all.
        end_seconds: When the last was, or the trace ended if that was later.
        nodes_least: Nodes that cost money at the same time, at least; ``nodes_most`` at most.
        nodes_busy_most: Nodes that worked at the same time, at most.
        node_hours: What was billed. ``usd`` is its price.
        queue_mean_seconds: What a job waited, until it began and after interruptions; likewise ``queue_p95_seconds``
            and ``queue_max_seconds``.
        utilisation_percent: Work, without what was done twice, by what the GPUs billed could have done.
        interruptions: Nodes that were taken back.
        lost_gpu_hours: Work that was done in vain; ``saving_gpu_hours`` went into checkpoints and restarts.
        series: (seconds, nodes that cost money from then on), in order of time.
    """

    name: str
    purchase: str
    jobs: int
    end_seconds: float
    nodes_least: int
    nodes_most: int
    nodes_busy_most: int
    node_hours: float
    usd: float
    queue_mean_seconds: float
    queue_p95_seconds: float
    queue_max_seconds: float
    utilisation_percent: float
    interruptions: int
    lost_gpu_hours: float
    saving_gpu_hours: float
    series: tuple[tuple[float, int], ...]
