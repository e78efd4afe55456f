"""Tokens a second and GPU of training language models."""

from __future__ import annotations

from math import log, log2

from provision.planner.predict.hardware import Accelerator
from provision.planner.predict.request import PredictRequest
from provision.planner.predict.shapes import Shape
from provision.planner.predict.signal import Signal

__all__ = ["UNIT", "choose_stack", "describe"]

UNIT = "tokens/s/GPU"
_RECOMPUTE = {"none": 0.0, "selective": 0.1, "full": 1 / 3}
_EIGHT_BIT = frozenset({"fp8", "amp_fp8", "float8", "mxfp8"})
_DEFAULT_TOKENS = 4096


def choose_stack(request: PredictRequest, accelerator: Accelerator) -> str:
    """Return the training software whose measurements speak of a run: ``fsdp`` or ``megatron``."""
    if request.stack:
        return request.stack
    is_split = request.tensor_parallel * request.pipeline_parallel * request.expert_parallel > 1
    is_narrow = request.precision in {"mxfp8", "nvfp4", "fp4"}
    return "megatron" if is_split or is_narrow or accelerator.compute_capability >= 10 else "fsdp"


def describe(request: PredictRequest, accelerator: Accelerator, shape: Shape) -> Signal:
    """Return what a training run looks like.

    Args:
        request: With ``sequence``, ``micro_batch``, ``gpus`` and how the model is split.
        accelerator: The GPU.
        shape: Sizes of the model.

    Source: operations of a token as :meth:`Shape.training_flop`; a third more where activations are computed again
    (Korthikanti et al. 2022).
    """
    sequence = request.sequence or 2048
    flop = shape.training_flop(sequence)
    recompute = _RECOMPUTE.get(request.recompute or "none", 0.0)
    spent = flop * (1 + recompute)
    if request.is_finetune:
        spent *= 2 / 3
    micro_batch = request.micro_batch or max(1.0, _DEFAULT_TOKENS / sequence)
    tokens = micro_batch * sequence
    physics = log(accelerator.tensor_flop_s / spent)
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
            f"{flop / 1e9:.3g} GFLOP a token, {accelerator.tensor_flop_s / 1e12:.4g} TFLOPS dense BF16 at most",
            *(() if shape.is_exact else ("layers and width are guessed from the number of parameters",)),
        ),
    )


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
    four_bit = 1.0 if request.precision in {"nvfp4", "fp4", "mxfp4"} else 0.0
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
        "sixteen_bit": 1.0 if request.precision in {"bf16", "fp16"} else 0.0,
        "finetune": 1.0 if request.is_finetune else 0.0,
    }
