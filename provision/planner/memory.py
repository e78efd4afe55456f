"""How much memory a job needs on each GPU, part by part, each with the formula it comes from."""

from __future__ import annotations

from provision.errors import DataError, UsageError
from provision.matrix.load import Matrix
from provision.planner.shape import Shape
from provision.predict.networks import Network
from provision.records import record

GIB = 1024.0**3
BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5}
"""Precision → bytes of one weight; the scales of quantised formats are counted with the overhead."""

SHARDINGS = ("none", "zero1", "zero2", "zero3")
"""What is spread over the data-parallel GPUs: nothing, the optimizer's states, gradients too, parameters too."""

CHECKPOINTING = ("none", "selective", "full", "offload")
"""Which activations are kept for the way back: all, about every second product, or only the input of each layer, on the
GPU or in the memory of the machine."""

LOSSES = {"whole": None, "chunked": 2.0, "fused": 0.0}
"""How logits become a loss: all at once, in parts whose fp32 copies follow one another, or without logits at all → the
bytes a token and word of the vocabulary; those of a whole loss are in the facts."""

ADAPTED = ("all", "attention")
"""The layers that have adapters: all linear ones, or those of the attention alone."""

STATES = {"fp32": (4.0, 4.0, 0.0), "mixed": (2.0, 2.0, 4.0), "megatron": (2.0, 4.0, 4.0), "bf16": (2.0, 2.0, 0.0)}
"""Way to keep them → bytes a parameter of weight, gradient and fp32 copy.

Source: `fp32`: FSDP2 and torch.amp keep weights and gradients in fp32 and compute in bf16. `mixed`: ZeRO paper
(arXiv:1910.02054), section 3.1. `megatron`: Megatron-LM's theoretical_memory_usage.py, gradients in fp32.
`bf16`: everything in 16 bits, moments too, without a copy (torchtune and LitGPT on one GPU).
"""

OPTIMIZERS = {
    "adam": 8.0,
    "fused_adam": 8.0,
    "adam8bit": 2.0,
    "paged_adam8bit": 0.0,
    "momentum": 4.0,
    "lion": 4.0,
    "sgd": 0.0,
}
"""Optimizer → bytes a trained parameter: its fp32 moments, or 8-bit ones; paged ones give way to whatever needs the GPU
(bitsandbytes)."""

_SCALES = {"int4": 2.5 / 128, "fp4": 1 / 16}
"""Precision → bytes a weight that scales take: of GPTQ and AWQ one of 16 bits and a zero of 4 for 128 weights, of NVFP4
and MXFP4 one of 8 bits for 16 or 32."""
_QUANTISED = 0.5 + 0.0625
"""Bytes of a weight in NF4 with an fp32 scale for each 64 of them (QLoRA, arXiv:2305.14314, section 3)."""
_QUANTISED_TWICE = 0.5 + 1 / 64 + 4 / (64 * 256)
"""The same with scales of 8 bits, and an fp32 one for each 256 of these (double quantisation)."""

_WIDE = ("fp32", "tf32")
_LORA_MATRICES = 2
_ADAPTED_BYTES = 2.0
"""Bytes that an adapter keeps of each number that goes into its layer: the copy that dropout made of it, in 16 bits."""
_PACKED_BYTES = 2.0
"""Bytes that a layer in 4 bits keeps of each number that goes into it (LitGPT's runs with bitsandbytes)."""
_PIECE = 8192
"""Tokens of prompts that an engine takes at once: the largest default of vLLM; longer prompts come in pieces."""
_KEPT_BYTES, _PASSING_BYTES = 8.0, 1.0
"""Bytes an activation of a network of images takes while it is trained, and while it infers, in 16 bits."""


@record
class Constants:
    """What the formulas take from the facts (``planning.toml``), in bytes and GiB."""

    logit_bytes: float
    logit_bytes_compiled: float
    cuda_context_gib: float
    nccl_gib: float
    serving_slack_gib: float
    band_low: float
    band_high: float


@record
class Layout:
    """How a job is spread over GPUs; ``data`` follows from the rest."""

    gpus: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be divided."""
        parts = self.tensor * self.pipeline * self.context
        if min(self.gpus, self.tensor, self.pipeline, self.context) < 1 or self.gpus % parts:
            raise UsageError(
                f"{self.gpus} GPUs cannot be divided into groups of {parts}",
                because=(f"tensor {self.tensor} × pipeline {self.pipeline} × context {self.context}",),
            )

    @property
    def data(self) -> int:
        """Copies that see different data."""
        return self.gpus // (self.tensor * self.pipeline * self.context)

    @property
    def shards(self) -> int:
        """GPUs that share the states of one part of the model: copies, and those that share a sequence."""
        return self.data * self.context


@record
class Training:
    """What is trained and how.

    ``micro_batch`` counts sequences a data-parallel GPU takes at once, ``micro_batches`` how often before it updates.
    ``adapted`` is one of :data:`ADAPTED`, ``loss`` one of :data:`LOSSES`. Where the optimizer ``updates_at_once``, a
    gradient is gone with its own update, on the way back. ``is_quantised_twice``: 4-bit weights have scales of 8 bits.
    """

    method: str = "full"
    states: str = "fp32"
    precision: str = "bf16"
    optimizer: str = "adam"
    sharding: str = "zero3"
    checkpointing: str = "selective"
    micro_batch: int = 1
    micro_batches: int = 1
    sequence: int = 2048
    is_compiled: bool = False
    has_flash: bool = True
    lora_rank: int = 16
    adapted: str = "all"
    loss: str = "whole"
    updates_at_once: bool = False
    is_quantised_twice: bool = True


@record
class Serving:
    """What is served: weights and cache in their precisions, sequences at once and the longest of them, in tokens."""

    precision: str = "bf16"
    cache_precision: str = "bf16"
    concurrent: int = 1
    sequence: int = 2048


@record
class Part:
    """One part of the memory of a GPU."""

    name: str
    gib: float
    formula: str


@record
class Estimate:
    """The memory of one GPU, in GiB.

    ``low_gib`` and ``high_gib`` are where published peaks lie around such estimates.
    """

    parts: tuple[Part, ...]
    total_gib: float
    low_gib: float
    high_gib: float


def read_constants(matrix: Matrix) -> Constants:
    """Return the constants of the facts.

    Raises:
        DataError: One is missing.
    """
    limits = {row.id: row.value for row in matrix.rows("planning.toml", "limit")}
    try:
        return Constants(
            logit_bytes=limits["logit_bytes"],
            logit_bytes_compiled=limits["logit_bytes_compiled"],
            cuda_context_gib=limits["cuda_context_gib"],
            nccl_gib=limits["nccl_gib"],
            serving_slack_gib=limits["serving_slack_gib"],
            band_low=limits["memory_band_low"],
            band_high=limits["memory_band_high"],
        )
    except KeyError as error:
        raise DataError(f"planning.toml: the limit `{error.args[0]}` is missing") from error


def lora_parameters(shape: Shape, rank: int, adapted: str = "all") -> int:
    """Return how many parameters adapters of a rank add to every linear layer, or to those of the attention.

    Source: LoRA (arXiv:2106.09685), section 4.1: a matrix of (in, out) gets rank × (in + out).
    """
    query, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    attention = 2 * (shape.hidden + query) + _LORA_MATRICES * (shape.hidden + keys)
    network = (3 if shape.is_gated else 2) * (shape.hidden + shape.ffn) * shape.experts
    return shape.layers * rank * (attention + (network if adapted == "all" else 0))


def states_gib(
    parameters: float, *, states: str, optimizer: str, sharding: str, shards: int
) -> tuple[float, float, float]:
    """Return weights, gradients and the optimizer's states of trained parameters on one GPU, in GiB.

    Args:
        parameters: Trained parameters that this GPU's model-parallel part has.
        states: A key of :data:`STATES`.
        optimizer: A key of :data:`OPTIMIZERS`.
        sharding: One of :data:`SHARDINGS`.
        shards: GPUs they are spread over.

    Source: ZeRO (arXiv:1910.02054), figure 1: stage 1 divides the optimizer's states by the number of copies, stage 2
    the gradients too, stage 3 the weights too.
    """
    weight, gradient, copy = STATES[states]
    stage = SHARDINGS.index(sharding)
    # Moments are kept in the precision of the weights, and 8-bit ones as they are.
    moments = copy + OPTIMIZERS[optimizer] * (0.5 if states == "bf16" and "8bit" not in optimizer else 1.0)
    return (
        weight * parameters / (shards if stage >= 3 else 1) / GIB,
        gradient * parameters / (shards if stage >= 2 else 1) / GIB,
        moments * parameters / (shards if stage >= 1 else 1) / GIB,
    )


def _width(precision: str) -> float:
    """Return how wide an activation is in a precision, in halves of 32 bits."""
    return 2.0 if precision in _WIDE else 1.0


def _inputs(shape: Shape, adapted: str = "all") -> float:
    """Return how many numbers of one token go into the products of a layer, or of its attention."""
    attention = 3.0 * shape.hidden + shape.heads * shape.head_size
    network = (2.0 if shape.is_gated else 1.0) * shape.hidden + shape.ffn * shape.experts_active
    return attention + (network if adapted == "all" else 0.0)


def _layer_bytes(shape: Shape, training: Training, checkpointing: str) -> float:
    """Return what one layer keeps of one token, in bytes.

    Source: Korthikanti et al. (arXiv:2205.05198), section 4.1, without dropout: input and output of each norm and
    product in 16 bits; a fused attention keeps its output and no scores. What torch.amp leaves in 32 bits, its
    reference names. Selective: torchtitan's operator policy, which saves the output of every second product and of
    the attention.
    """
    hidden, query, keys = shape.hidden, shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    ffn = shape.ffn * shape.experts_active
    wide = _width(training.precision)
    # torch.amp leaves norms, softmax and what runs past the layers in fp32.
    norms = 2.0 if training.states == "fp32" and training.sharding != "zero3" and training.method == "full" else wide
    entry = 2.0 * hidden * norms
    if checkpointing in ("full", "offload"):
        return entry
    if checkpointing == "selective":
        return entry + (2 * query + 2 * keys + 2 * ffn + 2 * hidden + 2 * query) * wide
    network = (8 if shape.is_gated else 4) * ffn
    # Scores before and behind the softmax, and a mask of one byte.
    scores = 0.0 if training.has_flash else (4.0 * norms + 1.0) * shape.heads * training.sequence
    return 8 * hidden * norms + (4 * query + 4 * keys + network) * wide + scores + _adapter_bytes(shape, training)


def _adapter_bytes(shape: Shape, training: Training) -> float:
    """Return what adapters, and layers in 4 bits, keep of one token beside what the layer does."""
    if training.method == "full":
        return 0.0
    packed = _PACKED_BYTES if training.method == "qlora" and training.checkpointing == "none" else 0.0
    return _ADAPTED_BYTES * _inputs(shape, training.adapted) + packed * _inputs(shape)


def _working_bytes(shape: Shape, training: Training) -> float:
    """Return what the layer at work needs of one token beyond what it keeps, in bytes.

    On the way back it is whole again, and the gradients of its feed-forward network and of its output are there too.
    """
    wide = _width(training.precision)
    gradients = ((4.0 if shape.is_gated else 2.0) * shape.ffn * shape.experts_active + 2.0 * shape.hidden) * wide
    whole = _layer_bytes(shape, training, "none") - _layer_bytes(shape, training, training.checkpointing)
    return (whole if training.checkpointing != "none" else 0.0) + gradients


def estimate_training(shape: Shape, layout: Layout, training: Training, constants: Constants) -> Estimate:
    """Return the memory a GPU needs to train, at the moment when it needs most.

    There are two such moments. At the loss all kept activations are there, beside the logits or the layer at work,
    but no gradients unless they are summed over micro-batches. At the update the activations are gone and the
    gradients whole, and Adam, which PyTorch reckons for all parameters at once, makes a copy of them.

    Raises:
        UsageError: The layout does not suit the model.

    Source: each part names its own; the sum is checked against the runs of ``tests/memory``.
    """
    _check_layout(shape, layout)
    split = layout.tensor * layout.pipeline
    is_full = training.method == "full"
    trained = shape.parameters if is_full else lora_parameters(shape, training.lora_rank, training.adapted)
    weights, gradients, moments = states_gib(
        trained / split,
        states=training.states if is_full else "mixed",
        optimizer=training.optimizer,
        sharding=training.sharding,
        shards=layout.shards,
    )
    how = f"{training.states}, {training.sharding} over {layout.shards}"
    parts = []
    if not is_full:
        parts += _frozen_parts(shape, training, split * (layout.shards if training.sharding == "zero3" else 1))
    parts += [
        Part(name="weights", gib=weights, formula=how),
        Part(name="optimizer", gib=moments, formula=f"{training.optimizer}, {training.sharding} over {layout.shards}"),
    ]
    gathered = _gathered_bytes(shape, layout, training) / GIB
    if gathered:
        parts.append(Part(name="gathered", gib=gathered, formula="layers at work, brought together"))
    at_once = is_full and training.updates_at_once
    if at_once:
        gradients *= shape.layer_parameters / shape.parameters
    loss = _loss_parts(shape, layout, training, constants)
    if training.micro_batches > 1 or at_once:
        loss.append(Part(name="gradients", gib=gradients, formula=how))
    update = [Part(name="gradients", gib=gradients, formula=how)]
    if training.optimizer == "adam" and not at_once:
        # As large as the weights that are updated: fp32 copies where there are any.
        copied = (STATES[training.states][2] or STATES[training.states][0]) if is_full else 4.0
        spread = layout.shards if training.sharding != "none" else 1
        gib = copied * trained / split / spread / GIB
        update.append(Part(name="update", gib=gib, formula="a copy of the updated weights while Adam reckons"))
    parts += max(loss, update, key=lambda moment: sum(part.gib for part in moment))
    return _sum([*parts, *_overhead(layout, constants)], constants)


def _loss_parts(shape: Shape, layout: Layout, training: Training, constants: Constants) -> list[Part]:
    """Return what there is at the loss beside weights and moments: activations, and logits or the layer at work."""
    tokens = training.micro_batch * training.sequence / layout.context
    in_flight = min(layout.pipeline, training.micro_batches)
    # Offloaded, two layers are on the GPU: one at work, one on its way.
    layers = 2.0 if training.checkpointing == "offload" else shape.layers / layout.pipeline * in_flight
    kept = tokens * _layer_bytes(shape, training, training.checkpointing) * layers / layout.tensor / GIB
    working = tokens * _working_bytes(shape, training) / layout.tensor / GIB
    logits = _logit_bytes(shape, layout, training, constants) / GIB
    what = f"checkpointing {training.checkpointing}, {training.micro_batch} × {training.sequence} tokens"
    cast = 0.0
    if training.method == "full" and training.states == "fp32" and training.precision not in _WIDE:
        stays = training.sharding != "zero3" or layout.shards == 1
        cast = 2.0 * shape.parameters / (layout.tensor * layout.pipeline) / GIB if stays else 0.0
    parts = [Part(name="activations", gib=kept, formula=what)]
    if cast:
        parts.append(Part(name="casts", gib=cast, formula="weights in 16 bits while they are kept in 32"))
    if logits > working:
        return [*parts, Part(name="logits", gib=logits, formula="tokens × vocabulary")]
    return [*parts, Part(name="layer at work", gib=working, formula="recomputed, with its gradients")]


def _frozen_parts(shape: Shape, training: Training, split: int) -> list[Part]:
    """Return frozen weights: of QLoRA the layers alone are in 4 bits, and a product at work is unpacked to 16."""
    if training.method != "qlora":
        each = BYTES[training.precision]
        gib = each * shape.parameters / split / GIB
        return [Part(name="frozen weights", gib=gib, formula=f"{each:g} B × parameters")]
    each = _QUANTISED_TWICE if training.is_quantised_twice else _QUANTISED
    layers = shape.layers * shape.layer_parameters
    ends = shape.parameters - layers
    wide = BYTES["bf16"]
    return [
        Part(name="frozen weights", gib=each * layers / split / GIB, formula=f"{each:.3g} B × weights of layers"),
        Part(name="frozen ends", gib=wide * ends / split / GIB, formula="embedding and output stay in 16 bits"),
        Part(name="unpacked", gib=wide * shape.hidden * shape.ffn / GIB, formula="the product at work in 16 bits"),
    ]


def estimate_network(
    network: Network,
    *,
    batch: int,
    is_training: bool,
    gpus: int,
    optimizer: str,
    constants: Constants,
    precision: str = "bf16",
) -> Estimate:
    """Return the memory a GPU needs for so many images at once: trained in mixed precision, or served in ``precision``.

    Source: Dollár, Singh, Girshick 2021 (activations, the outputs of all convolutions and products); in training each
    is kept for the way back in 16 bits with what norms and non-linear layers keep beside it.
    """
    each = 4.0 if is_training else BYTES[precision]
    weights = network.parameters / GIB
    parts = [
        Part(name="weights", gib=each * weights, formula=f"{each:g} B × parameters"),
        Part(name="beside", gib=BYTES[precision] * network.beside / GIB, formula="text encoders and decoder of images"),
    ]
    if is_training:
        parts += [
            Part(name="gradients", gib=4 * weights, formula="fp32, data-parallel"),
            Part(name="optimizer", gib=OPTIMIZERS[optimizer] * weights, formula=optimizer),
        ]
    widest = network.macts_m if is_training or not network.widest_m else network.widest_m
    kept = _KEPT_BYTES if is_training else _PASSING_BYTES * _width(precision)
    gib = kept * batch * widest * 1e6 / GIB
    parts.append(Part(name="activations", gib=gib, formula=f"{batch} images of {network.image_size} pixels"))
    return _sum([*parts, *_overhead(Layout(gpus=gpus), constants)], constants)


def _check_layout(shape: Shape, layout: Layout) -> None:
    if shape.heads % layout.tensor:
        raise UsageError(f"{shape.heads} attention heads are not divided by {layout.tensor} tensor-parallel GPUs")
    if layout.pipeline > shape.layers:
        raise UsageError(f"{shape.layers} layers do not make {layout.pipeline} pipeline stages")


def _gathered_bytes(shape: Shape, layout: Layout, training: Training) -> float:
    """Return what ZeRO-3 brings together to work with: the ends of the model, the layer at work and the next one.

    With a pipeline the whole stage stays together from the first micro-batch to the last, and so do its gradients.

    Source: PyTorch FSDP2 (``reshard_after_forward``) as torchtitan sets it.
    """
    if training.sharding != "zero3" or layout.shards == 1:
        return 0.0
    compute = 2.0
    packed = _QUANTISED if training.method == "qlora" else compute
    if layout.pipeline > 1:
        stage = shape.parameters / (layout.tensor * layout.pipeline)
        return (compute + (4.0 if training.method == "full" else 0.0)) * stage
    layers = 2 * shape.layer_parameters * packed
    reduced = shape.layer_parameters * 4.0 if training.method == "full" else 0.0
    return (shape.end_parameters * compute + layers + reduced) / layout.tensor


def _logit_bytes(shape: Shape, layout: Layout, training: Training, constants: Constants) -> float:
    tokens = training.micro_batch * training.sequence / layout.context
    whole = constants.logit_bytes_compiled if training.is_compiled else constants.logit_bytes
    own = LOSSES[training.loss]
    each = whole if own is None else own
    return tokens * shape.vocab * each / layout.tensor


def cache_bytes_per_token(shape: Shape, precision: str) -> float:
    """Return what one token takes in the cache of keys and values, all layers together.

    Source: two vectors of kv_heads × head_size a layer (grouped queries: arXiv:2305.13245).
    """
    return 2.0 * shape.layers * shape.kv_heads * shape.head_size * BYTES[precision]


def estimate_serving(shape: Shape, layout: Layout, serving: Serving, constants: Constants) -> Estimate:
    """Return the memory a GPU needs to serve.

    Raises:
        UsageError: The layout does not suit the model.
    """
    _check_layout(shape, layout)
    split = layout.tensor * layout.pipeline
    # Tensor parallelism beyond the heads of keys and values repeats them.
    cache_split = min(layout.tensor, shape.kv_heads) * layout.pipeline
    tokens = serving.concurrent * serving.sequence
    cache = tokens * cache_bytes_per_token(shape, serving.cache_precision) / cache_split / GIB
    piece = min(serving.sequence, _PIECE)
    working = piece * (8.0 * shape.hidden + 4.0 * shape.ffn * shape.experts_active) / layout.tensor / GIB
    each, ends = BYTES[serving.precision] + _SCALES.get(serving.precision, 0.0), shape.end_parameters
    wide = max(BYTES["bf16"], BYTES[serving.precision])
    weights = (each * (shape.parameters - ends) + wide * ends) / split / GIB
    parts = [
        Part(name="weights", gib=weights, formula=f"{each:.3g} B × weights of layers, {wide:g} of both ends / {split}"),
        Part(name="cache", gib=cache, formula=f"2 × layers × kv heads × head size × {tokens} tokens / {cache_split}"),
        Part(name="activations", gib=working, formula="a piece of a prompt in one layer"),
        Part(name="engine", gib=constants.serving_slack_gib, formula="graphs and buffers of the serving engine"),
        *_overhead(layout, constants),
    ]
    return _sum(parts, constants)


def _overhead(layout: Layout, constants: Constants) -> list[Part]:
    parts = [Part(name="context", gib=constants.cuda_context_gib, formula="CUDA and the framework's kernels")]
    if layout.gpus > 1:
        parts.append(Part(name="nccl", gib=constants.nccl_gib, formula="buffers of the collectives"))
    return parts


def _sum(parts: list[Part], constants: Constants) -> Estimate:
    total = sum(part.gib for part in parts)
    return Estimate(
        parts=tuple(parts),
        total_gib=total,
        low_gib=total * constants.band_low,
        high_gib=total * constants.band_high,
    )
