"""Whether a job fits a machine, and spread in which way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import cast

from provision.errors import UsageError
from provision.matrix.model import CloudInstance, Gpu, MigProfile
from provision.planner.job import Job
from provision.planner.memory import (
    Constants,
    Estimate,
    Layout,
    Serving,
    Training,
    estimate_network,
    estimate_serving,
    estimate_training,
)
from provision.planner.shape import Shape
from provision.predict.networks import Network
from provision.predict.precision import is_lacking
from provision.records import record

_CONCURRENT_MOST = 256
_BUSY_TOKENS = 16384
# Activations go to the memory of the machine only where somebody says so: it is slow.
_CHECKPOINTING_TRIED = ("none", "selective", "full")
_IMAGES_MOST = 256
# Weights in these are unpacked before they are multiplied, so that every GPU can serve them.
_UNPACKED = ("fp4", "int4", "int8")

_LINKS = {"nvlink": ("nvlink", "nvswitch"), "nvswitch": ("nvswitch",)}
"""What is asked for between GPUs → links in the facts that are it."""
_FABRICS = {
    "ib": (("infiniband",), "InfiniBand"),
    "efa": (("efa",), "EFA"),
    "rdma": (("infiniband", "efa"), "InfiniBand or EFA"),
}
"""What is asked for between machines → fabrics in the facts that are it, and its name."""
_NAMES = {
    "efa": "EFA",
    "infiniband": "InfiniBand",
    "none": "nothing",
    "nvlink": "NVLink",
    "nvswitch": "NVSwitch",
    "pcie": "PCI Express",
}


class UnfitError(Exception):
    """The job does not fit; the text says why."""


@record
class Fit:
    """How a job is spread over machines, and the memory that takes.

    Attributes:
        training: Set where something is trained; ``serving`` where something is served.
        replicas: Copies of the model that serve, in one node.
        usable_gib: What a GPU gives of its memory.
        share: Part of a GPU's compute that a process gets, below 1 in a MIG instance or a part of a GPU.
        is_elastic: The cache takes what is left, so that it cannot be too large.
        images: That a GPU has at once, of a network of images.
    """

    layout: Layout
    memory: Estimate | None
    usable_gib: float
    training: Training | None = None
    serving: Serving | None = None
    replicas: int = 1
    share: float = 1.0
    is_elastic: bool = False
    images: int | None = None

    @property
    def is_tight(self) -> bool:
        """Whether the estimate fits, but not the upper end of its range."""
        if self.memory is None:
            return False
        spare = sum(part.gib for part in self.memory.parts if part.name == "cache") if self.is_elastic else 0.0
        band = self.memory.high_gib / self.memory.total_gib
        return (self.memory.total_gib - spare) * band > self.usable_gib


def unmet(
    job: Job, instance: CloudInstance, gpu: Gpu, encoderless: frozenset[str], firsts: Mapping[str, str]
) -> str | None:
    """Return the first hard condition a machine does not meet, in words; ``None`` when it meets all.

    Args:
        job: The job.
        instance: The machine.
        gpu: Its GPU.
        encoderless: Ids of GPUs without a video encoder.
        firsts: Precision → the compute capability it begins with.
    """
    if job.min_vram_gb is not None and instance.gpu_memory_gb < job.min_vram_gb:
        return f"{instance.gpu_memory_gb:g} GB a GPU are below {job.min_vram_gb:g}"
    if job.interconnect is not None and (why := _unjoined(job.interconnect, instance)) is not None:
        return why
    if job.task == "render" and gpu.id in encoderless:
        return f"{gpu.name} has no video encoder"
    if job.shape is None:
        return None
    if not computing(job, gpu, firsts):
        return f"{gpu.name} does not compute in {' or '.join(job.precisions or (job.precision,))}"
    return None


def computing(job: Job, gpu: Gpu, firsts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the precisions of a job that a GPU computes in; weights that are unpacked first suit every GPU."""
    return tuple(
        precision
        for precision in job.precisions or (job.precision,)
        if precision in _UNPACKED or not is_lacking(gpu.compute_capability, precision, firsts)
    )


def _unjoined(wanted: str, instance: CloudInstance) -> str | None:
    """Return why a machine has not the links that are asked for; ``None`` when it has."""
    if wanted in _FABRICS:
        fabrics, name = _FABRICS[wanted]
        if instance.fabric in fabrics:
            return None
        has = "none is known" if instance.fabric is None else f"it has {_NAMES[instance.fabric]}"
        return f"no {name} to other machines: {has}"
    if instance.gpu_count == 1:
        return f"it has one GPU, and {_NAMES[wanted]} joins several"
    if instance.interconnect in _LINKS[wanted]:
        return None
    return f"its GPUs are joined by {_NAMES[instance.interconnect]}, not by {_NAMES[wanted]}"


def fit_job(
    job: Job,
    instance: CloudInstance,
    nodes: int,
    constants: Constants,
    *,
    usable_share: float,
    profile: MigProfile | None = None,
) -> tuple[Fit, ...]:
    """Return the ways a job can be spread over machines of one kind, best guess first; serving has one a replica size.

    Args:
        job: The job, checked.
        instance: The machine.
        nodes: How many of them.
        constants: Of the memory formulas.
        usable_share: Part of a GPU's memory that a process gets.
        profile: MIG profile every GPU is cut into.

    Raises:
        UnfitError: There is no way.
    """
    memory_gb = profile.memory_gb if profile is not None else instance.gpu_memory_gb
    usable = memory_gb * usable_share
    share = (profile.slices / profile.of_slices) if profile is not None else (instance.gpu_share or 1.0)
    if job.network is not None:
        gpus = 1 if profile is not None or not job.is_training else instance.gpu_count * nodes
        copies = instance.gpu_count * (profile.instances_max if profile is not None else 1)
        return (_fit_network(job, job.network, gpus, copies, constants, usable, share),)
    if job.shape is None:
        return (Fit(layout=Layout(gpus=instance.gpu_count * nodes), memory=None, usable_gib=usable, share=share),)
    if job.is_training:
        return (_fit_training(job, job.shape, instance, nodes, constants, usable, share, is_cut=profile is not None),)
    copies = instance.gpu_count * (profile.instances_max if profile is not None else 1)
    return tuple(_fit_serving(job, job.shape, instance, constants, usable, share, copies, is_cut=profile is not None))


def _tensors(instance: CloudInstance, shape: Shape, *, is_cut: bool, is_serving: bool = False) -> Iterator[int]:
    """Yield how many GPUs may share every product: powers of two, and in training only over NVLink."""
    yield 1
    tensor = 2
    joined = ("nvlink", "nvswitch", "pcie") if is_serving else ("nvlink", "nvswitch")
    while not is_cut and instance.interconnect in joined and tensor <= instance.gpu_count:
        if shape.heads % tensor == 0 and instance.gpu_count % tensor == 0:
            yield tensor
        tensor *= 2


def _fit_training(
    job: Job,
    shape: Shape,
    instance: CloudInstance,
    nodes: int,
    constants: Constants,
    usable: float,
    share: float,
    *,
    is_cut: bool,
) -> Fit:
    gpus = 1 if is_cut else instance.gpu_count * nodes
    nearest: tuple[float, Estimate, Layout] | None = None
    starved = None
    for pipeline in (1, *(2**power for power in range(1, 5) if nodes % 2**power == 0)):
        if pipeline > 1 and nearest is None:
            # A pipeline is for models that are too large, not for batches that are too small.
            break
        for tensor in _tensors(instance, shape, is_cut=is_cut):
            if gpus % (tensor * pipeline):
                continue
            layout = Layout(gpus=gpus, tensor=tensor, pipeline=pipeline)
            sizes = list(_micro_batches(job, layout))
            if not sizes:
                starved = layout
                continue
            found: Fit | None = None
            kinds = (job.checkpointing,) if job.checkpointing else _CHECKPOINTING_TRIED
            for checkpointing, (micro_batch, micro_batches) in product(kinds, sizes):
                training = Training(
                    method=job.method,
                    states=job.states,
                    precision=job.precision,
                    optimizer=job.optimizer,
                    sharding=job.sharding,
                    checkpointing=checkpointing,
                    micro_batch=micro_batch,
                    micro_batches=micro_batches,
                    sequence=job.sequence,
                    is_compiled=job.is_compiled,
                    lora_rank=job.lora_rank,
                    adapted=job.adapted,
                    loss=job.loss,
                    updates_at_once=job.updates_at_once,
                )
                try:
                    memory = estimate_training(shape, layout, training, constants)
                except UsageError:
                    continue
                if memory.total_gib <= usable:
                    fit = Fit(layout=layout, memory=memory, usable_gib=usable, training=training, share=share)
                    if not fit.is_tight:
                        return fit
                    # What may not fit is taken only where nothing fits for sure, and then the least of it.
                    if found is None or memory.total_gib < cast("Estimate", found.memory).total_gib:
                        found = fit
                if nearest is None or memory.total_gib < nearest[0]:
                    nearest = (memory.total_gib, memory, layout)
            if found is not None:
                return found
    if nearest is None:
        if starved is not None:
            raise UnfitError(
                f"a batch of {job.batch} does not feed {starved.data} copies of {job.micro_batch or 1} sequences each"
            )
        raise UnfitError("no way to spread the model over its GPUs")
    raise UnfitError(_too_large(nearest[1], usable, nearest[2]))


def _fit_network(
    job: Job, network: Network, gpus: int, copies: int, constants: Constants, usable: float, share: float
) -> Fit:
    """Return how many images a GPU takes at once: as many as fit for sure, else as fit, and help."""
    sizes = [2**power for power in range(_IMAGES_MOST.bit_length() - 1, -1, -1)]
    if job.micro_batch is not None:
        sizes = [job.micro_batch]
    elif job.batch is not None:
        sizes = [size for size in sizes if size * gpus <= job.batch]
        if not sizes:
            raise UnfitError(f"a batch of {job.batch} does not feed {gpus} GPUs")
    fits = [
        Fit(
            layout=Layout(gpus=gpus),
            memory=estimate_network(
                network,
                batch=size,
                is_training=job.is_training,
                gpus=gpus,
                optimizer=job.optimizer,
                constants=constants,
                precision=job.precision,
            ),
            usable_gib=usable,
            share=share,
            replicas=1 if job.is_training else copies,
            images=size,
        )
        for size in sizes
    ]
    fitting = [fit for fit in fits if fit.memory is not None and fit.memory.total_gib <= usable]
    if not fitting:
        raise UnfitError(_too_large(cast("Estimate", fits[-1].memory), usable, Layout(gpus=gpus)))
    return next((fit for fit in fitting if not fit.is_tight), fitting[-1])


def _micro_batches(job: Job, layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield how many sequences a GPU takes at once and how often before an update, the most at once first.

    Beyond some tokens at once a GPU is busy, and more of them only take memory.
    """
    most = max(_BUSY_TOKENS // job.sequence, 1)
    sizes = [2**power for power in range(most.bit_length() - 1, -1, -1)]
    for size in [job.micro_batch] if job.micro_batch is not None else sizes:
        each = layout.data * size
        if job.batch is None:
            yield size, layout.pipeline
        elif job.batch >= each:
            yield size, job.batch // each


def _too_large(memory: Estimate, usable: float, layout: Layout) -> str:
    largest = max(memory.parts, key=lambda part: part.gib)
    how = f" on {layout.gpus} GPUs" if layout.gpus > 1 else ""
    return f"{memory.total_gib:.0f} GiB a GPU{how}, most of it {largest.name}, are above {usable:.0f} GiB"


def _fit_serving(
    job: Job,
    shape: Shape,
    instance: CloudInstance,
    constants: Constants,
    usable: float,
    share: float,
    copies: int,
    *,
    is_cut: bool,
) -> Iterator[Fit]:
    least: tuple[Estimate, Layout] | None = None
    is_any = False
    for precision, tensor in product(
        job.precisions or (job.precision,), _tensors(instance, shape, is_cut=is_cut, is_serving=True)
    ):
        layout = Layout(gpus=tensor, tensor=tensor)

        def estimate(concurrent: int, layout: Layout = layout, precision: str = precision) -> tuple[Serving, Estimate]:
            serving = Serving(
                precision=precision,
                cache_precision=job.cache_precision or _cache_of(precision),
                concurrent=concurrent,
                sequence=job.sequence,
            )
            return serving, estimate_serving(shape, layout, serving, constants)

        concurrent = job.concurrent or 1
        serving, memory = estimate(concurrent)
        if memory.total_gib > usable:
            if least is None or memory.total_gib < least[0].total_gib:
                least = (memory, layout)
            continue
        if job.concurrent is None:
            cache = next(part.gib for part in memory.parts if part.name == "cache")
            # An engine gives its cache what the weights leave.
            room = (usable - memory.total_gib) / cache if cache else _CONCURRENT_MOST
            serving, memory = estimate(max(min(1 + int(room), _CONCURRENT_MOST), 1))
        is_any = True
        yield Fit(
            layout=layout,
            memory=memory,
            usable_gib=usable,
            serving=serving,
            replicas=copies // tensor,
            share=share,
            is_elastic=job.concurrent is None,
        )
    if not is_any:
        assert least is not None  # noqa: S101 - one GPU alone was tried
        raise UnfitError(_too_large(least[0], usable, least[1]))


def _cache_of(precision: str) -> str:
    return precision if precision in ("fp32", "fp16", "bf16", "fp8") else "bf16"
