"""Milliseconds between tokens of served language models; tokens a second of one stream.

The time to the first token is a queue, which follows from how requests arrive: nothing here forecasts it.
"""

from __future__ import annotations

from math import log, log2

from provision.predict.hardware import Accelerator
from provision.predict.request import PredictRequest
from provision.predict.shapes import Shape
from provision.predict.signal import Signal

__all__ = ["describe", "describe_decode"]

_BYTES = {"fp4": 0.55, "nvfp4": 0.55, "mxfp4": 0.55, "int4": 0.55, "fp8": 1.0, "int8": 1.0, "mxfp8": 1.0, "fp32": 4.0}
_FOUR_BIT_BYTES = 0.5
_BACKENDS = ("trtllm", "vllm", "sglang")


def describe(request: PredictRequest, accelerator: Accelerator, shape: Shape) -> Signal:
    """Return what one served model under load looks like.

    A step reads the weights that its tokens meet and the cache of each sequence, multiplies, and exchanges between
    GPUs twice a layer.

    Args:
        request: With ``batch`` (sequences at once), ``input_tokens``, ``output_tokens`` and the split.
        accelerator: The GPU.
        shape: Sizes of the model.

    Source: Pope et al. 2022 (cost of a decoding step).
    """
    gpus = max(1, request.tensor_parallel)
    batch = request.batch or 1.0
    inputs = request.input_tokens or 1024
    outputs = request.output_tokens or 1024
    width = _BYTES.get(request.precision, 2.0)
    # A token meets a share of the experts; many tokens meet them all.
    met = (
        shape.parameters
        if not shape.is_sparse
        else min(
            shape.parameters, shape.active_parameters * min(batch, shape.parameters / shape.active_parameters) ** 0.9
        )
    )
    speed = accelerator.memory_bytes_s * gpus
    weights = met * width / speed
    cache = batch * (inputs + outputs / 2) * shape.layers * shape.cache_values / speed
    compute = 2 * shape.active_parameters * batch / (accelerator.tensor_flop_s * gpus)
    exchange = shape.layers * (2e-6 + (8e-6 if gpus > 1 else 0.0))
    step = weights + cache + compute + exchange
    prefill = 2 * shape.active_parameters * inputs / (0.4 * accelerator.tensor_flop_s * gpus) + exchange
    physics = log(1e3 * step)
    # What no software beats: what one token meets comes through the memory once.
    least = shape.active_parameters * (width if width >= 1 else _FOUR_BIT_BYTES) / speed
    load = log2(batch)
    features: dict[str, float] = {
        "weights": log(weights / step),
        "cache": log(cache / step),
        "compute": log(compute / step),
        "exchange": log(exchange / step),
        "step": log(step * 1e3),
        "prefill": log(prefill * 1e3),
        "batch": load,
        "batch_squared": load * load,
        "inputs": log2(inputs / 1024),
        "outputs": log2(outputs / 1024),
        "ratio": log2(inputs / outputs),
        "interference": log(1 + batch * prefill / (outputs * step)),
        "gpus": log2(gpus),
        "gpus_batch": log2(gpus) * load,
        "attention_parallel": log2(request.attention_parallel),
        "expert_parallel": log2(request.expert_parallel),
        "sparsity": log(shape.parameters / shape.active_parameters),
        "active": log(shape.active_parameters / 2e10),
        "layers": log(shape.layers / 60),
        "width": log2(width),
        "disaggregated": 1.0 if request.is_disaggregated else 0.0,
        "disaggregated_batch": load if request.is_disaggregated else 0.0,
        "two_dies": 1.0 if accelerator.dies > 1 else 0.0,
        "bandwidth": log(accelerator.memory_bytes_s / 4e12),
        **{f"backend_{name}": 1.0 if request.backend == name else 0.0 for name in _BACKENDS},
        **{f"backend_{name}_batch": load if request.backend == name else 0.0 for name in _BACKENDS},
        **{
            f"backend_{name}_active": log(shape.active_parameters / 2e10) if request.backend == name else 0.0
            for name in _BACKENDS
        },
    }
    return Signal(
        physics=physics,
        features=features,
        keys={"gpu": accelerator.id, "model": shape.name},
        unit="ms",
        size=shape.parameters,
        batch=batch,
        gpus=gpus,
        higher_is_better=False,
        notes=(
            f"{1e3 * weights:.3g} ms a step to read weights in {request.precision}, "
            f"{1e3 * cache:.3g} ms a cache of 8 bits, at the memory's ceiling",
            f"{batch:.0f} sequence{'' if batch == 1 else 's'} at once, {inputs} tokens in and {outputs} out each",
        ),
        bound=log(1e3 * least),
        cautions=_too_large(shape.parameters * width, accelerator, gpus),
    )


def _too_large(weight_bytes: float, accelerator: Accelerator, gpus: int) -> tuple[str, ...]:
    """Return the sentence that a model whose weights alone exceed the memory deserves, or nothing."""
    if accelerator.memory_gb is None or weight_bytes <= accelerator.memory_gb * 1e9 * gpus:
        return ()
    room = f"{accelerator.memory_gb:.4g} GB" if gpus == 1 else f"{gpus} × {accelerator.memory_gb:.4g} GB"
    return (f"weights of {weight_bytes / 1e9:.3g} GB do not fit into {room}: take more GPUs or fewer bits",)


def describe_decode(request: PredictRequest, accelerator: Accelerator, shape: Shape) -> Signal:
    """Return what one stream on one machine looks like: bytes read a token, or operations of a prompt.

    Args:
        request: With ``weight_bytes``, and ``input_tokens`` where a prompt is read rather than tokens made.
        accelerator: The GPU.
        shape: Sizes of the model.

    Source: Pope et al. 2022.
    """
    size = request.weight_bytes or shape.parameters * _BYTES.get(request.precision, 2.0)
    held = "" if request.weight_bytes else f", weights in {request.precision}"
    cautions = _too_large(size, accelerator, 1)
    size *= min(1.0, shape.active_parameters / shape.parameters)
    tokens = request.input_tokens or 0
    if tokens:
        seconds = (
            2 * shape.active_parameters / (0.3 * accelerator.tensor_flop_s)
            + (size / accelerator.memory_bytes_s + 25e-6 * shape.layers) / tokens
        )
        # Software that multiplies in 8 bits is twice as fast.
        least = shape.active_parameters / accelerator.tensor_flop_s
    else:
        length = (request.output_tokens or 128) / 2
        cache = 2 * length * shape.layers * shape.cache_values
        seconds = (size + cache) / (0.75 * accelerator.memory_bytes_s) + 40e-6 * shape.layers + 1e-3
        least = size / accelerator.memory_bytes_s
    return Signal(
        physics=-log(seconds),
        features={},
        keys={"gpu": accelerator.id, "model": shape.name},
        unit="tokens/s",
        size=shape.parameters,
        batch=max(tokens, 1),
        gpus=request.gpus,
        notes=(f"{size / 1e9:.3g} GB read a token{held}, {accelerator.memory_bytes_s / 1e9:.4g} GB/s at most",),
        bound=-log(least),
        cautions=cautions,
    )
