"""Tokens a second and GPU of training language models."""

from __future__ import annotations

from math import hypot, log, log2

from provision.errors import IncompatibleError, UnknownError, UsageError
from provision.predict.hardware import Accelerator
from provision.predict.request import PredictRequest
from provision.predict.shapes import Shape
from provision.predict.signal import Signal

UNIT = "tokens/s/GPU"
_RECOMPUTE = {"none": 0.0, "selective": 0.1, "full": 1 / 3}
_EIGHT_BIT = frozenset({"fp8", "amp_fp8", "float8", "mxfp8"})
SIXTEEN_BIT = frozenset({"bf16", "fp16", "half", "amp", "amp_bf16", "amp_fp16"})
_FOUR_BIT = frozenset({"nvfp4", "fp4", "mxfp4"})
_DEFAULT_TOKENS = 4096
_WIDE = frozenset({"fp32", "tf32"})
_HALF_AS_FAST = log(2) / 2
"""Half the distance, in logarithms, from half to all of a speed."""

_PCIE_DRAG, _PCIE_DOUBT = 0.22, 0.25
"""The middle of 0.6 and 1 as a logarithm, and half of the way between them."""
_SCALING_EXPONENT = 0.9
_GPUS_OF_A_NODE = 8


def choose_stack(request: PredictRequest, accelerator: Accelerator) -> str:
    """Return the training software whose measurements speak of a run: ``fsdp`` or ``megatron``."""
    if request.stack:
        return request.stack
    is_split = request.tensor_parallel * request.pipeline_parallel * request.expert_parallel > 1
    is_narrow = request.precision == "mxfp8" or request.precision in _FOUR_BIT
    return "megatron" if is_split or is_narrow or accelerator.compute_capability >= 10 else "fsdp"


def check_precision(precision: str, accelerator: Accelerator) -> None:
    """Refuse a precision that the arithmetic of a GPU lacks.

    Raises:
        IncompatibleError: It lacks it.

    Source: ``precision_capability`` of gpus.toml.
    """
    needed = accelerator.needs_for(precision)
    # Where bf16 is lacking, fp16 takes its place, and a caution says so.
    if needed is not None and precision not in SIXTEEN_BIT:
        raise IncompatibleError(
            f"{accelerator.name} does not compute in {precision}",
            because=(f"its compute capability is {accelerator.compute_capability:g}, and {precision} needs {needed}",),
            hints=("choose `--precision fp16`" if accelerator.needs_for("bf16") else "choose `--precision bf16`",),
        )


def describe(request: PredictRequest, accelerator: Accelerator, shape: Shape) -> Signal:
    """Return what a training run looks like.

    Args:
        request: With ``sequence``, ``micro_batch``, ``gpus`` and how the model is split.
        accelerator: The GPU.
        shape: Sizes of the model.

    Raises:
        UnknownError: The GPU's peak in this precision is not in the facts.
        UsageError: Nothing is trained in this precision.

    Source: operations of a token as :meth:`Shape.training_flop`; a third more where activations are computed again
    (Korthikanti et al. 2022).
    """
    rate = _peak(request.precision, accelerator)
    sequence = request.sequence or 2048
    flop = shape.training_flop(sequence)
    recompute = _RECOMPUTE.get(request.recompute or "none", 0.0)
    spent = flop * (1 + recompute)
    if request.is_finetune:
        spent *= 2 / 3
    micro_batch = request.micro_batch or _choose_micro_batch(request, sequence)
    tokens = micro_batch * sequence
    drag, unsure = joined(request)
    physics = log(rate / spent) - drag
    attention = 12 * shape.layers * shape.hidden * sequence / flop
    split = request.tensor_parallel * request.pipeline_parallel
    accumulation = 1.0
    if request.global_batch:
        accumulation = max(1.0, request.global_batch * split * request.context_parallel / (micro_batch * request.gpus))
    stack = choose_stack(request, accelerator)
    width = log(shape.hidden / 2048)
    compute_seconds = spent * tokens / split / accelerator.tensor_flop_s
    exchange_seconds = 2 * shape.parameters / split / accelerator.link_bytes_s
    features = {
        "width": width,
        "width_squared": width * width,
        "attention": attention,
        "attention_squared": attention * attention,
        "sequence": log(sequence / 2048),
        "tokens": log(tokens / 16384),
        "tokens_squared": log(tokens / 16384) ** 2,
        "gpus": log(request.gpus / 8),
        "accumulation": log(accumulation),
        "recompute": 3 * recompute,
        "exchange": log(exchange_seconds / compute_seconds),
        "several_nodes": 1.0 if request.gpus > 8 else 0.0,
        "hopper": 1.0 if 9 <= accelerator.compute_capability < 10 else 0.0,
        "eight_bit": 1.0 if request.precision in _EIGHT_BIT else 0.0,
        "memory": log((accelerator.memory_gb or 80) / 80),
    }
    if stack == "fsdp":
        features |= _fsdp_features(request, accelerator, features)
    else:
        features = _megatron_features(request, accelerator, shape)
    return Signal(
        physics=physics,
        features=features,
        keys={
            "gpu": accelerator.id,
            "model": shape.name,
            "run": "/".join(
                (shape.name, accelerator.id, request.precision, "tune" if request.is_finetune else "train")
            ),
        },
        unit=UNIT,
        size=shape.parameters,
        batch=request.global_batch or micro_batch * request.gpus,
        gpus=request.gpus,
        notes=(
            f"{flop / 1e9:.3g} GFLOP a token, {rate / 1e12:.4g} TFLOPS dense {_title(request.precision)} at most",
            *(() if shape.is_exact else ("layers and width are guessed from the number of parameters",)),
        ),
        bound=_bound(request, accelerator, flop),
        doubt=hypot(unsure, _HALF_AS_FAST if request.precision in _WIDE else 0.0),
        cautions=_cautions(request.precision, accelerator),
    )


def joined(request: PredictRequest) -> tuple[float, float]:
    """Return what links slow a run down by, and half the 80 % interval of that, as logarithms.

    GPUs on PCI Express alone keep from 0.6 of their speed to all of it, and a machine more, of few GPUs each, brings
    0.9 of a power of what it would alone; the runs that forecasts were learnt from had neither.

    Source: `pcie_low_share` and `scaling_exponent` of planning.toml.
    """
    drag = unsure = 0.0
    if request.link == "pcie" and request.gpus > 1:
        drag, unsure = _PCIE_DRAG, _PCIE_DOUBT
    nodes = request.nodes or 1
    if nodes > 1 and request.gpus / nodes < _GPUS_OF_A_NODE:
        drag += (1 - _SCALING_EXPONENT) * log(nodes)
        unsure = hypot(unsure, (1 - _SCALING_EXPONENT) * log(nodes))
    return drag, unsure


def _cautions(precision: str, accelerator: Accelerator) -> tuple[str, ...]:
    if precision in _WIDE:
        return (f"no run in {precision} was learnt from: its peak is put in the place of that of 16 bits",)
    if precision in {"bf16", "amp_bf16"} and accelerator.needs_for(precision):
        return (f"{accelerator.name} does not compute in bf16: this is its speed in fp16",)
    return ()


def _choose_micro_batch(request: PredictRequest, sequence: int) -> float:
    """Return the sequences of one pass where none are given: some thousand tokens, but no more than the batch has."""
    micro_batch = max(1.0, _DEFAULT_TOKENS / sequence)
    if request.global_batch:
        copies = request.gpus / (request.tensor_parallel * request.pipeline_parallel * request.context_parallel)
        micro_batch = min(micro_batch, max(1.0, request.global_batch / max(1.0, copies)))
    return micro_batch


def _peak(precision: str, accelerator: Accelerator) -> float:
    """Return the operations a second that a forecast is a share of.

    What was learnt of narrow precisions is learnt as a share of the peak of 16 bits, which they may exceed.
    """
    if precision in {"int8", "int4"}:
        raise UsageError(f"nothing is trained in {precision}", hints=("choose bf16, fp16, fp8, mxfp8, nvfp4 or tf32",))
    if precision not in _WIDE:
        return accelerator.tensor_flop_s
    rate = accelerator.tf32_flop_s if precision == "tf32" else accelerator.fp32_flop_s
    if rate is None:
        raise UnknownError(
            f"the peak of {accelerator.name} in {precision} is not in the facts", hints=("choose `--precision bf16`",)
        )
    return rate


def _title(precision: str) -> str:
    return precision.upper() if precision in {"fp32", "tf32", "fp16"} else "BF16"


def _bound(request: PredictRequest, accelerator: Accelerator, flop: float) -> float | None:
    """Return the logarithm of the tokens a second at the peak of the precision, or ``None`` where it is not known."""
    if request.precision in _FOUR_BIT:
        return None
    rate = _peak(request.precision, accelerator)
    if request.precision in _EIGHT_BIT:
        rate = max(accelerator.eight_bit_flop_s or 0.0, 2 * rate)
    return log(rate / (flop * (2 / 3 if request.is_finetune else 1)))


def _fsdp_features(request: PredictRequest, accelerator: Accelerator, common: dict[str, float]) -> dict[str, float]:
    hopper, eight_bit = common["hopper"], common["eight_bit"]
    small = 1.0 if (accelerator.memory_gb or 80) < 48 else 0.0
    several = common["several_nodes"]
    is_titan = 1.0 if request.is_compiled is not None else 0.0
    return {
        "small_memory": small,
        "hopper_width": hopper * common["width"],
        "eight_bit_width": eight_bit * common["width"],
        "small_memory_gpus": small * common["gpus"],
        "recompute_attention": common["recompute"] * common["attention"],
        "hopper_attention": hopper * common["attention"],
        "eight_bit_attention": eight_bit * common["attention"],
        "hopper_exchange": hopper * common["exchange"],
        "several_nodes_exchange": several * common["exchange"],
        "small_memory_several_nodes_exchange": small * several * common["exchange"],
        "titan": is_titan,
        "compiled": 1.0 if request.is_compiled else 0.0,
        "titan_eight_bit": is_titan * eight_bit,
        "titan_attention": is_titan * common["attention"],
        "titan_split": is_titan * log2(request.tensor_parallel * request.pipeline_parallel),
        "titan_context": is_titan * log2(request.context_parallel),
    }


def _megatron_features(request: PredictRequest, accelerator: Accelerator, shape: Shape) -> dict[str, float]:
    """Return little: few models were measured, and each was tuned, so that what is left of its split is its own."""
    sparse = 1.0 if shape.is_sparse else 0.0
    blackwell = 1.0 if accelerator.compute_capability >= 10 else 0.0
    ultra = 1.0 if accelerator.compute_capability >= 10.3 else 0.0
    four_bit = 1.0 if request.precision in _FOUR_BIT else 0.0
    return {
        "sparse": sparse,
        "sparse_before_blackwell": sparse * (1 - blackwell),
        "blackwell": blackwell,
        "ultra": ultra,
        "rack": 1.0 if accelerator.id.startswith("gb") else 0.0,
        "eight_bit": 1.0 if request.precision in _EIGHT_BIT else 0.0,
        "scaled_eight_bit": 1.0 if request.precision == "mxfp8" else 0.0,
        "four_bit": four_bit,
        "four_bit_sparse": four_bit * sparse,
        "four_bit_ultra": four_bit * ultra,
        "sixteen_bit": 1.0 if request.precision in SIXTEEN_BIT else 0.0,
        "finetune": 1.0 if request.is_finetune else 0.0,
    }
