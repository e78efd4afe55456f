"""The flags of ``provision plan`` and the job they describe."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from typing import Any

from provision.cli.number import SCALES, number, whole
from provision.cli.parser import Once, add_choice, add_switch, add_value, parse_path
from provision.cli.request import FLAG_HELP
from provision.errors import UnknownError, UsageError, shown
from provision.files import read_text
from provision.matrix.load import Matrix
from provision.planner.catalogue import PURCHASES, read_rates
from provision.planner.cost import Extras
from provision.planner.job import INTERCONNECTS, METHODS, TASKS, Job, check_job
from provision.planner.memory import ADAPTED, BYTES, CHECKPOINTING, LOSSES, OPTIMIZERS, SHARDINGS, STATES
from provision.planner.plan import Terms
from provision.planner.shape import SIZES, Shape, find_shape, make_shape, read_config
from provision.predict.networks import Network, Networks
from provision.records import NOTHING

STACK_FLAGS = ("torch", "tensorflow", "jax", "cuda", "python", "driver")
"""Flags of ``provision resolve`` that this command takes too."""

_CONFIG_BYTES_MAX = 1024 * 1024
_IMAGENET, _EPOCHS = 1_281_167, 90
"""Images of ImageNet-1k (Russakovsky et al. 2015), and the epochs of He et al. 2016."""
_SEQUENCE = 2048
_RESERVED = ("1y", "3y")
_DIGITS_OF_A_COUNT = 2
"""A number as short as this is not a name of a GPU."""
_Convert = Callable[[str], Any]


def _amount(flag: str, units: Mapping[str, float] = NOTHING, *, example: str = "8") -> _Convert:
    """Return a reader of a number above zero."""
    return number(flag, is_above=True, units=units, example=example)


def _count(flag: str) -> _Convert:
    """Return a reader of a whole number above zero, which may end in k, m, b or t (``2m``, ``2e6``)."""
    return whole(flag, units=SCALES, example="8")


def _rate(text: str) -> tuple[str, float]:
    currency, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z]{3}", currency):
        raise UsageError(
            f"--rate `{shown(text)}` is not a rate", hints=("write dollars for one as in `--rate CNY=0.14`",)
        )
    return currency.upper(), _amount("--rate")(value)


def add_job_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags; only the task is required."""
    group = parser.add_argument_group("job")
    add_choice(group, "--task", TASKS, help="kind of job")
    add_value(group, "--model", "NAME", "name of a published model (llama-3.1-8b)")
    add_value(group, "--config", "FILE", "config.json of any other model", parse_path)
    add_value(group, "--params", "N", "parameters (8b, 7e9)", _amount("--params", SCALES, example="70b"))
    for size in SIZES:
        flag = f"--{size.replace('_', '-')}"
        add_value(group, flag, "N", _SIZE_HELP[size], _count(flag))
    _add_words(group, "--method", METHODS, "train all weights, or adapters")
    add_choice(
        group,
        "--precision",
        tuple(BYTES),
        action="append",
        help=("precision of the computation, or of served weights; repeat it to choose the cheapest (default: bf16)"),
    )
    add_value(group, "--batch", "N", "sequences per optimizer step", _count("--batch"))
    add_value(group, "--micro-batch", "N", "sequences per GPU and pass", _count("--micro-batch"))
    add_value(group, "--seq", "N", "tokens per sequence (default: 2048)", _count("--seq"))
    add_value(group, "--output-tokens", "N", _OUTPUT_HELP, _count("--output-tokens"))
    add_value(group, "--tokens", "N", "training tokens (15t, 1e9)", _amount("--tokens", SCALES, example="70b"))
    add_value(
        group,
        "--samples",
        "N",
        "images or sequences in the dataset (default for images: the 1,281,167 of ImageNet)",
        _amount("--samples", SCALES, example="1.28m"),
    )
    add_value(group, "--epochs", "N", "passes over the dataset (default: 1; for images 90)", _amount("--epochs"))
    add_value(
        group,
        "--image-size",
        "PIXELS",
        "width and height of an image (default: that of the network)",
        _count("--image-size"),
    )
    add_value(group, "--ttft-ms", "MS", _TTFT_HELP, _amount("--ttft-ms"))
    add_value(group, "--tpot-ms", "MS", _TPOT_HELP, _amount("--tpot-ms"))
    add_value(group, "--hours", "H", "duration of the job, instead of its size", _amount("--hours"))
    add_value(group, "--qps", "N", "requests per second to serve", _amount("--qps"))
    add_value(group, "--concurrency", "N", "concurrent sequences per replica", _count("--concurrency"))
    tuning = parser.add_argument_group("configuration (whatever is not given is chosen or assumed, and stated)")
    _add_words(tuning, "--optimizer", tuple(OPTIMIZERS), "optimizer (default: adam)")
    _add_words(
        tuning, "--states", tuple(STATES), "precision of weights, gradients and optimizer states (default: fp32)"
    )
    _add_words(tuning, "--sharding", SHARDINGS, "sharding across data-parallel GPUs (default: zero3)")
    _add_words(tuning, "--checkpointing", CHECKPOINTING, "activation checkpointing")
    _add_words(
        tuning,
        "--loss",
        tuple(LOSSES),
        "compute the loss from all logits at once, in chunks, or fused (default: whole)",
    )
    add_switch(tuning, "--update-at-once", "free each gradient right after its update")
    add_switch(tuning, "--compile", "use torch.compile: fewer copies of the logits")
    add_value(tuning, "--lora-rank", "N", "rank of the adapters (default: 16)", _count("--lora-rank"))
    _add_words(tuning, "--lora-layers", ADAPTED, "linear layers that have adapters (default: all)")
    add_value(tuning, "--mig", "PROFILE", "run in MIG instances of this profile (1g.10gb)")
    add_value(tuning, "--gpus", "N", "exact number of GPUs on all machines", _count("--gpus"))
    add_value(tuning, "--nodes", "N", "exact number of machines", _count("--nodes"))
    add_value(tuning, "--max-nodes", "N", "maximum number of machines (default for training: 8)", _count("--max-nodes"))
    must = parser.add_argument_group("constraints")
    add_value(must, "--deadline", "H", "maximum duration in hours", _amount("--deadline"))
    add_value(must, "--budget", "USD", "maximum cost", _amount("--budget", SCALES))
    add_value(must, "--min-vram", "GB", "minimum memory per GPU", _amount("--min-vram"))
    _add_words(must, "--interconnect", INTERCONNECTS, _LINK_HELP)
    add_value(must, "--gpu", "NAME", "only these GPUs; may be repeated", action="append")
    for name in STACK_FLAGS:
        metavar, text = FLAG_HELP[name]
        add_value(must, f"--{name}", metavar, text)
    where = parser.add_argument_group("location and price")
    add_value(where, "--providers", "NAME,…", "use only these; may be repeated", action="append")
    add_value(where, "--region", "NAME,…", "use only these; may be repeated", action="append")
    add_switch(where, "--on-demand", "on-demand prices (the default)")
    add_switch(where, "--spot", "spot prices, for machines that may be reclaimed")
    add_choice(where, "--reserved", _RESERVED, action="append", help="reserved prices")
    add_value(where, "--spot-share", "S", _SHARE_HELP, number("--spot-share", 0, 1))
    add_value(where, "--rate", "CNY=USD", "exchange rate: US dollars per unit of a currency", _rate, action="append")
    add_value(where, "--peak-factor", "F", "factor of spare capacity for peaks (default: 1)", _amount("--peak-factor"))
    zero = {"action": Once, "metavar": "N"}
    for flag, text in _EXTRA_HELP.items():
        where.add_argument(flag, type=number(flag, units=SCALES), help=text, **zero)  # type: ignore[arg-type]
    spot = parser.add_argument_group("spot")
    add_value(spot, "--mtbf", "H", "mean time between interruptions of a node", _amount("--mtbf"))
    add_switch(spot, "--no-checkpoints", "no checkpoints: an interrupted job restarts from the beginning")
    add_value(spot, "--checkpoint-gb", "GB", "size of a checkpoint", _amount("--checkpoint-gb"))
    add_value(spot, "--checkpoint-gb-s", "N", "checkpoint write speed of a node in GB/s", _amount("--checkpoint-gb-s"))
    add_value(spot, "--restart-minutes", "M", "time until an interrupted job continues", number("--restart-minutes"))


_SIZE_HELP = {
    "layers": "number of layers",
    "hidden": "hidden size",
    "heads": "attention heads",
    "kv_heads": "key and value heads",
    "head_size": "head size",
    "ffn": "feed-forward size, per expert",
    "vocab": "vocabulary size",
    "experts": "experts per layer",
    "experts_active": "experts per token",
}
_TTFT_HELP = "for serving: maximum time to the first token"
_TPOT_HELP = "for serving: maximum time between tokens"
_OUTPUT_HELP = "tokens per answer (default: 256)"
_SHARE_HELP = "with --spot: share of the nodes that is spot; the others are reserved or on demand"
_LINK_HELP = (
    "nvlink connects GPUs within a machine, nvswitch all of them with each other; between machines, ib is InfiniBand, "
    "efa Amazon's Elastic Fabric Adapter, rdma either"
)
_EXTRA_HELP = {
    "--storage-gb": "storage while the job runs",
    "--storage-price": "USD per GB and month, if the facts have no price",
    "--egress-gb": "outgoing traffic",
    "--egress-price": "USD per GB of outgoing traffic, if the facts have no price",
}


def _add_words(group: argparse._ArgumentGroup, flag: str, known: tuple[str, ...], text: str) -> None:
    add_choice(group, flag, known, help=text)


def list_words(values: list[str] | None) -> list[str]:
    """Return the words of flags that may be repeated and hold several, separated by commas."""
    return [word.strip() for value in values or () for word in value.split(",") if word.strip()]


def read_job(options: argparse.Namespace, matrix: Matrix) -> Job:
    """Return the job of the flags.

    Raises:
        UsageError: It cannot be.
        UnknownError: The facts do not know the model.
    """
    if options.task is None:
        raise UsageError("--task is missing", hints=(f"give `--task` one of {', '.join(TASKS)}",))
    given = {
        "method": options.method,
        "precision": options.precision[0] if options.precision else None,
        "optimizer": options.optimizer,
        "states": options.states,
        "sharding": options.sharding,
        "lora_rank": options.lora_rank,
        "adapted": options.lora_layers,
        "loss": options.loss,
        "micro_batch": options.micro_batch,
        "sequence": options.seq,
        "output": options.output_tokens,
        "max_nodes": options.max_nodes,
    }
    network, shape = None, None
    if options.task not in ("render", "hpc"):
        network = _network(options, matrix)
        shape = None if network is not None else _shape(options, matrix)
    tokens, images, assumed = _amounts(options, network)
    job = Job(
        task=options.task,
        shape=shape,
        network=network,
        name=options.model if network is not None else shape.name if shape is not None else "",
        precisions=tuple(dict.fromkeys(options.precision)) if len(options.precision or ()) > 1 else (),
        images=images,
        ttft_ms=options.ttft_ms,
        tpot_ms=options.tpot_ms,
        assumed=assumed,
        checkpointing=options.checkpointing,
        is_compiled=options.compile,
        updates_at_once=options.update_at_once,
        batch=options.batch,
        concurrent=options.concurrency,
        tokens=tokens,
        hours=options.hours,
        requests_per_second=options.qps,
        deadline_hours=options.deadline,
        budget_usd=options.budget,
        min_vram_gb=options.min_vram,
        interconnect=options.interconnect,
        gpus=options.gpus,
        nodes=options.nodes,
        mig=options.mig,
        mtbf_hours=options.mtbf,
        has_checkpoints=not options.no_checkpoints,
        checkpoint_gb=options.checkpoint_gb,
        checkpoint_gb_s=options.checkpoint_gb_s,
        restart_minutes=options.restart_minutes,
        spot_share=options.spot_share,
        **{name: value for name, value in given.items() if value is not None},
    )
    check_job(job)
    _check_flags(options, job, matrix)
    return job


def _network(options: argparse.Namespace, matrix: Matrix) -> Network | None:
    """Return the network of images that a name means; language models come first."""
    if options.model is None:
        return None
    try:
        find_shape(matrix, options.model)
    except UnknownError:
        return Networks(matrix.data_dir).find(options.model, options.image_size)
    return None


def _amounts(
    options: argparse.Namespace, network: Network | None
) -> tuple[float | None, float | None, tuple[str, ...]]:
    """Return the tokens or the images to train on, and what was assumed of them.

    Raises:
        UsageError: They are said twice, or in what the model does not learn from.
    """
    counted = options.samples is not None or options.epochs is not None
    if options.tokens is not None and (counted or network is not None):
        why = "a network of images learns from no tokens" if network is not None else "both say how much is trained"
        raise UsageError("--tokens does not go with this", because=(why,), hints=("give `--samples` and `--epochs`",))
    if options.image_size is not None and network is None:
        raise UsageError("--image-size is for a network of images", hints=("leave it out",))
    if counted and options.task not in ("pretrain", "finetune"):
        raise UsageError("--samples and --epochs are for training", hints=("`--qps` is the load of serving",))
    if network is None:
        if options.epochs is not None and options.samples is None:
            raise UsageError("--epochs needs the number of samples", hints=("give `--samples`",))
        if options.samples is None:
            return options.tokens, None, ()
        return options.samples * (options.epochs or 1.0) * (options.seq or _SEQUENCE), None, ()
    if options.hours is not None or options.task not in ("pretrain", "finetune"):
        return None, None, ()
    assumed = []
    if options.samples is None:
        assumed.append(f"the data is ImageNet's {_IMAGENET:,} images (`--samples` says yours)")
    if options.epochs is None:
        assumed.append(f"{_EPOCHS} epochs, as in the first recipe of ResNet (`--epochs` says yours)")
    return None, (options.samples or _IMAGENET) * (options.epochs or _EPOCHS), tuple(assumed)


def _shape(options: argparse.Namespace, matrix: Matrix) -> Shape | None:
    sizes = {size: getattr(options, size) for size in SIZES if getattr(options, size) is not None}
    if options.model is not None:
        if options.config is not None or options.params is not None or sizes:
            raise UsageError(
                "the model is described twice",
                because=(f"`--model {shown(options.model)}` says all sizes",),
                hints=("leave out either `--model` or the sizes",),
            )
        return find_shape(matrix, options.model)
    name = "the model"
    if options.config is not None:
        name = options.config.stem
        text = read_text(options.config, "--config", bytes_max=_CONFIG_BYTES_MAX)
        sizes = {**read_config(text, str(options.config)), **sizes}
    if options.params is None and not sizes:
        return None
    return make_shape(matrix, name, parameters=options.params, sizes=sizes)


def _check_flags(options: argparse.Namespace, job: Job, matrix: Matrix) -> None:
    for name in options.gpu or ():
        if name.isdecimal() and len(name) <= _DIGITS_OF_A_COUNT:
            raise UsageError(f"`--gpu {name}` names no GPU", hints=(f"`--gpus {name}` asks for so many of them",))
    if options.spot_share is not None and not options.spot:
        raise UsageError("--spot-share speaks of spot", hints=("add `--spot`",))
    if job.tokens is not None and not job.is_training:
        raise UsageError("--tokens are for training", hints=("`--qps` is the load of serving, `--hours` how long",))
    if job.requests_per_second is not None and job.task != "inference":
        raise UsageError("--qps is for serving", hints=("`--task inference`",))
    if (job.ttft_ms is not None or job.tpot_ms is not None) and (job.task != "inference" or job.shape is None):
        raise UsageError("--ttft-ms and --tpot-ms are for serving language models", hints=("leave them out",))
    if job.precisions and job.task != "inference":
        raise UsageError("one precision trains", hints=("give `--precision` once",))
    if job.mig is not None:
        known = sorted({row.profile for row in matrix.rows("planning.toml", "mig_profile")})
        if job.mig not in known:
            raise UsageError(f"--mig `{shown(job.mig)}` is not a profile", hints=(f"known are {', '.join(known)}",))


def read_terms(options: argparse.Namespace, matrix: Matrix) -> Terms:
    """Return how it may be paid.

    Raises:
        UsageError: A peak factor below 1.
    """
    chosen = {"on-demand": options.on_demand, "spot": options.spot}
    chosen |= {f"reserved-{years}": years in (options.reserved or ()) for years in _RESERVED}
    purchases = tuple(purchase for purchase in PURCHASES if chosen[purchase]) or ("on-demand",)
    if options.peak_factor is not None and options.peak_factor < 1:
        raise UsageError(f"a peak of {options.peak_factor:g} times the usual load is none", hints=("give 1 or more",))
    extras = Extras(
        storage_gb=options.storage_gb or 0.0,
        storage_usd_gb_month=options.storage_price,
        egress_gb=options.egress_gb or 0.0,
        egress_usd_gb=options.egress_price,
        peak_factor=options.peak_factor or 1.0,
    )
    return Terms(purchases=purchases, rates=read_rates(matrix, dict(options.rate or ())), extras=extras)
