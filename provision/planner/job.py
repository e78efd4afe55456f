"""What is to be run, for how long, and what must hold."""

from __future__ import annotations

from provision.errors import UsageError
from provision.planner.memory import ADAPTED, BYTES, CHECKPOINTING, LOSSES, OPTIMIZERS, SHARDINGS
from provision.planner.shape import Shape
from provision.predict.networks import Network
from provision.records import record

TASKS = ("pretrain", "finetune", "inference", "render", "hpc")
METHODS = ("full", "lora", "qlora")
INTERCONNECTS = ("nvlink", "nvswitch", "ib", "efa", "rdma")
"""What may be asked of links. ``nvlink`` joins GPUs of a machine, ``nvswitch`` each of them to all others. ``ib`` is
InfiniBand between machines, ``efa`` Amazon's Elastic Fabric Adapter, which is not InfiniBand, ``rdma`` either."""


@record
class Job:
    """One piece of work. What is ``None`` was not said; what depends on it is refused or listed as assumed.

    Attributes:
        task: One of :data:`TASKS`.
        shape: The language model; ``network`` is the network of images in its place, called ``name``. Rendering and
            HPC have neither.
        method: Of training: one of :data:`METHODS`.
        precisions: Of served weights, several of which the cheapest is taken from.
        adapted: The layers that have adapters.
        loss: How logits become a loss; ``updates_at_once`` frees each gradient with its own update.
        batch: Sequences an update of the whole job sees. ``micro_batch`` are those of one GPU at once,
            as many as fit and help where nobody says.
        sequence: Tokens of a sequence, prompt and answer together; ``output`` are those of the answer.
        tokens: Tokens to train on, or ``images``, all epochs together. ``hours`` is a duration instead.
        ttft_ms: The longest wait for a first token that is served; ``tpot_ms`` that between tokens.
        requests_per_second: Of serving, at its usual load.
        concurrent: Sequences a replica serves at once.
        deadline_hours: Latest end. ``budget_usd`` is the most it may cost.
        min_vram_gb: Least memory of each GPU.
        interconnect: One of :data:`INTERCONNECTS` that must be there.
        gpus: Exactly so many, of all nodes together.
        nodes: Exactly so many; ``max_nodes`` at most so many; 8 for training where
            nobody says, as many as the load takes for serving.
        mig: MIG profile to run in (``1g.10gb``).
        mtbf_hours: Mean time between interruptions of one spot instance, where somebody knows better.
        has_checkpoints: The job saves and goes on from there.
        spot_share: Part of the nodes that is spot, where both kinds are mixed.
    """

    task: str
    shape: Shape | None = None
    network: Network | None = None
    name: str = ""
    method: str = "full"
    precision: str = "bf16"
    precisions: tuple[str, ...] = ()
    optimizer: str = "adam"
    states: str = "fp32"
    sharding: str = "zero3"
    checkpointing: str | None = None
    is_compiled: bool = False
    lora_rank: int = 16
    adapted: str = "all"
    loss: str = "whole"
    updates_at_once: bool = False
    batch: int | None = None
    micro_batch: int | None = None
    sequence: int = 2048
    output: int = 256
    cache_precision: str | None = None
    concurrent: int | None = None
    tokens: float | None = None
    images: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    hours: float | None = None
    requests_per_second: float | None = None
    deadline_hours: float | None = None
    budget_usd: float | None = None
    min_vram_gb: float | None = None
    interconnect: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    max_nodes: int | None = None
    mig: str | None = None
    mtbf_hours: float | None = None
    has_checkpoints: bool = True
    checkpoint_gb: float | None = None
    checkpoint_gb_s: float | None = None
    restart_minutes: float | None = None
    spot_share: float | None = None
    assumed: tuple[str, ...] = ()

    @property
    def amount(self) -> float | None:
        """What is to be trained on: tokens, or images."""
        return self.tokens if self.network is None else self.images

    @property
    def is_training(self) -> bool:
        """Whether gradients are computed."""
        return self.task in ("pretrain", "finetune")


_HOURS_MAX = 876_600.0
"""A century."""


def check_job(job: Job) -> None:
    """Refuse a job that cannot be.

    Raises:
        UsageError: A word is unknown, a size is not above zero, or parts contradict one another.
    """
    for word, value, known in (
        ("task", job.task, TASKS),
        ("method", job.method, METHODS),
        *(("precision", precision, tuple(BYTES)) for precision in (job.precision, *job.precisions)),
        ("optimizer", job.optimizer, tuple(OPTIMIZERS)),
        ("sharding", job.sharding, SHARDINGS),
        ("checkpointing", job.checkpointing or "full", CHECKPOINTING),
        ("interconnect", job.interconnect or "ib", INTERCONNECTS),
        ("loss", job.loss, tuple(LOSSES)),
        ("adapted layers", job.adapted, ADAPTED),
    ):
        if value not in known:
            raise UsageError(f"{word} `{value}` is not known", hints=(f"choose of {', '.join(known)}",))
    for word, number in (
        ("batch", job.batch),
        ("micro-batch", job.micro_batch),
        ("sequence", job.sequence),
        ("output", job.output),
        ("concurrency", job.concurrent),
        ("number of tokens", job.tokens),
        ("number of images", job.images),
        ("time to the first token", job.ttft_ms),
        ("time between tokens", job.tpot_ms),
        ("number of hours", job.hours),
        ("number of requests a second", job.requests_per_second),
        ("deadline", job.deadline_hours),
        ("budget", job.budget_usd),
        ("memory", job.min_vram_gb),
        ("number of GPUs", job.gpus),
        ("number of nodes", job.nodes),
        ("number of nodes", job.max_nodes),
        ("time between interruptions", job.mtbf_hours),
        ("size of a checkpoint", job.checkpoint_gb),
        ("bandwidth of checkpoints", job.checkpoint_gb_s),
        ("rank", job.lora_rank),
    ):
        if number is not None and not 0 < number < float("inf"):
            raise UsageError(f"a {word} of {number:g} makes no sense", hints=("give a number above 0",))
    if job.hours is not None and job.hours > _HOURS_MAX:
        raise UsageError(f"{job.hours:g} hours are more than a century", hints=("730 hours are a month",))
    if job.restart_minutes is not None and not 0 <= job.restart_minutes < float("inf"):
        raise UsageError(f"a restart of {job.restart_minutes:g} minutes makes no sense")
    if job.spot_share is not None and not 0 <= job.spot_share <= 1:
        raise UsageError(f"a share of {job.spot_share:g} is none", hints=("give a number from 0 to 1",))
    _check_parts(job)


def _check_parts(job: Job) -> None:
    if job.task in ("render", "hpc"):
        if job.hours is None:
            raise UsageError(
                f"how long {job.task} takes is not known", because=("nothing forecasts it",), hints=("give `--hours`",)
            )
        if job.deadline_hours is not None and job.hours > job.deadline_hours:
            raise UsageError(f"{job.hours:g} hours do not end within {job.deadline_hours:g}")
        return
    if job.shape is None and job.network is None:
        raise UsageError("no model is named", hints=("give `--model`, `--config` or `--params`",))
    if job.is_training and job.precision in ("int8", "int4", "fp4"):
        raise UsageError(
            f"weights in {job.precision} are not trained",
            hints=("`--method qlora` trains adapters on 4-bit weights", "choose bf16, fp16, fp8, tf32 or fp32"),
        )
    if job.is_training and job.batch is not None and (job.micro_batch or 1) > job.batch:
        raise UsageError(
            f"an update of {job.batch} sequences does not hold {job.micro_batch} at once",
            hints=("give a larger `--batch`, or a smaller `--micro-batch`",),
        )
    if job.is_training and (job.amount is None) == (job.hours is None):
        raise UsageError(
            "the amount of training is given twice" if job.amount else "the amount of training is missing",
            hints=("give one of `--tokens`, `--samples` with `--epochs`, or `--hours`",),
        )
    if job.task == "inference":
        if job.hours is None:
            raise UsageError("the duration of serving is missing", hints=("give `--hours`, 730 for a month",))
        if job.shape is not None and job.output >= job.sequence:
            raise UsageError(
                f"an answer of {job.output} tokens leaves no prompt in a sequence of {job.sequence}",
                hints=("`--seq` counts prompt and answer together",),
            )
    if job.mig is not None and job.nodes not in (None, 1):
        raise UsageError("a MIG instance does not reach beyond its GPU", hints=("leave `--nodes` out",))
    if job.mig is not None and job.gpus is not None:
        raise UsageError("`--gpus` counts whole GPUs, and `--mig` parts of one", hints=("leave one of the two out",))
