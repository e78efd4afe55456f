"""Served language models: milliseconds between tokens, milliseconds to the first one, tokens a second of one stream.

A step of decoding is the sum of what its operators take: weights and cache come through the memory, products are
multiplied, GPUs exchange what they have, engines schedule. Each part is what the hardware would take at its ceiling,
times a constant that says how far engines stay from it; the constants were fitted to published measurements
(``serving.json``), and a regression takes what is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import ceil, hypot, log, log2, sqrt
from typing import Any

from provision.predict.hardware import Accelerator
from provision.predict.request import PredictRequest
from provision.predict.shapes import Shape
from provision.predict.signal import Signal
from provision.records import record

_BYTES = {"fp4": 0.5625, "nvfp4": 0.5625, "mxfp4": 0.53, "int4": 0.55, "fp8": 1.0, "int8": 1.0, "mxfp8": 1.0, "fp32": 4}
"""Bytes a weight takes, its scales included."""
_FOUR_BIT_BYTES = 0.5
_FOUR_BIT = ("fp4", "nvfp4", "mxfp4")
_BACKENDS = ("trtllm", "vllm", "sglang")
_AMPERE, _BLACKWELL = 8.0, 10.0
_PASS_TOKENS = 512
"""Tokens of a prompt that llama.cpp reads at once (`--ubatch-size`)."""
_CACHE_SHARE = 0.9
"""Of the memory, what engines take for weights and cache."""
PROMPT = ("prompt_products", "prompt_experts", "prompt_attention", "prompt_exchange", "prompt_layers")
"""Parts of what it takes to read a prompt."""
_LATENT_OPERATIONS = 2 * (576 + 512)
"""Operations of one head and one token of cache, where the cache is latent (DeepSeek-V2, arXiv:2405.04434)."""


@record
class Engine:
    """What engines make of the hardware's ceilings.

    Attributes:
        step: Part of a step → how often its ideal time it takes.
        engines: Engine → part → its own factor on top.
        shared: Share and exponent that make the sequences of one decoding machine of those of all, where nobody says
            how many machines decode.
        prompt: Part of reading a prompt → how often its ideal time it adds to the wait for the first token.
        first: Part of the wait for the first token → how often its ideal time it takes, for machines that decode as
            well and for those that do not.
        unstated: Metric → half the 80 % interval, in logarithms, of not knowing how many machines decode.
        stream: Constants of one stream that reads a prompt; see :func:`prompt_seconds`.
    """

    step: Mapping[str, float]
    engines: Mapping[str, Mapping[str, float]]
    shared: tuple[float, float]
    prompt: Mapping[str, float]
    first: Mapping[str, Mapping[str, float]]
    unstated: Mapping[str, float]
    stream: Mapping[str, float]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Engine:
        """Return the constants of the parsed ``serving.json``."""
        share, exponent = document["shared"]
        return cls(
            step=document["step"],
            engines=document["engines"],
            shared=(share, exponent),
            prompt=document["prompt"],
            first=document["first"],
            unstated=document["unstated"],
            stream=document["stream"],
        )


def _width(request: PredictRequest) -> float:
    return _BYTES.get(request.precision, 2.0)


def _dense_width(shape: Shape, width: float) -> float:
    """Return the bytes of a weight outside of the experts, which four-bit checkpoints of sparse models keep wider."""
    return width if not shape.is_sparse or width >= 1 else 1.0


def _rate(request: PredictRequest, accelerator: Accelerator) -> float:
    """Return the operations a second in the precision that the weights are multiplied in."""
    wide = accelerator.tensor_flop_s
    eight = accelerator.eight_bit_flop_s or wide
    if request.precision in _FOUR_BIT and accelerator.compute_capability >= _BLACKWELL:
        return 4 * wide
    return max(eight, wide) if request.precision in {"fp8", "mxfp8", "int8"} else wide


def _gpus(request: PredictRequest) -> int:
    return max(1, request.tensor_parallel) * max(1, request.pipeline_parallel)


def _cache_width(width: float, precision: str) -> float:
    """Return the bytes that engines keep a number of the cache in: weights of 8 or 4 bits in floating point have 8."""
    return 1.0 if width <= 1 and precision != "int4" else 2.0


def _cache_bytes(request: PredictRequest, shape: Shape) -> float:
    """Return the bytes that one token of one sequence leaves in the cache of a machine."""
    return shape.layers * shape.cache_values * _cache_width(_width(request), request.precision)


def _split(shape: Shape, heads: int) -> int:
    """Return into how many parts a cache is split: latent ones are not, and no head of keys and values is."""
    return 1 if shape.latent_heads else min(heads, max(1, shape.kv_heads))


def _room(request: PredictRequest, accelerator: Accelerator, shape: Shape) -> float:
    """Return how many sequences the cache of a machine holds, at the middle of their answers."""
    gpus, width = _gpus(request), _width(request)
    alone = max(1, request.attention_parallel)
    heads = max(1, gpus // alone)
    routed = shape.routed_parameters
    weights = (shape.parameters - routed) * _dense_width(shape, width) / heads + routed * width / gpus
    room = _CACHE_SHARE * (accelerator.memory_gb or math.inf) * 1e9 - weights
    context = ((request.input_tokens or 1024) + (request.output_tokens or 1024) / 2) * shape.cached_share
    return max(1.0, room * alone * _split(shape, heads) / (_cache_bytes(request, shape) * context))


def _sequences(request: PredictRequest, accelerator: Accelerator, shape: Shape, engine: Engine) -> float:
    """Return the sequences at once of one machine that decodes."""
    batch = request.batch or 1.0
    if request.is_disaggregated and request.workers:
        batch = max(1.0, batch / request.workers)
    elif request.is_disaggregated:
        share, exponent = engine.shared
        batch = min(batch, max(1.0, share * math.pow(batch, exponent)))
    return min(batch, _room(request, accelerator, shape))


def _prompt(
    request: PredictRequest, accelerator: Accelerator, shape: Shape, gpus: int, alone: int = 1
) -> dict[str, float]:
    """Return the seconds of each part of a prompt at the ceilings of a machine, whose GPUs are split ``alone`` ways.

    What a prompt waits for itself: one that is read by a part of the machine has no more than that part.
    """
    context = request.input_tokens or 1024
    tokens = context * (1 - (request.cached_share or 0.0))
    routed, rate = shape.routed_parameters, _rate(request, accelerator)
    met = 1 - (1 - shape.expert_share) ** tokens if routed else 0.0
    heads = max(1, gpus // alone)
    return {
        "prompt_products": 2 * (shape.parameters - routed) * tokens / heads / rate,
        "prompt_experts": hypot(
            2 * routed * shape.expert_share * tokens / gpus / rate,
            routed * met * _width(request) / gpus / accelerator.memory_bytes_s,
        ),
        "prompt_attention": 2
        * shape.layers
        * shape.attention_width
        * shape.cached_share
        * tokens
        * context
        / heads
        / accelerator.tensor_flop_s,
        "prompt_exchange": 2 * 2 * shape.layers * shape.hidden * tokens / accelerator.link_bytes_s if gpus > 1 else 0.0,
        "prompt_layers": 1e-6 * shape.layers,
    }


def step_terms(
    request: PredictRequest, accelerator: Accelerator, shape: Shape, engine: Engine
) -> tuple[dict[str, float], float]:
    """Return the seconds that each part of a step of decoding takes at the hardware's ceiling, and its sequences.

    Args:
        request: With ``batch`` (sequences at once), ``input_tokens``, ``output_tokens`` and the split.
        accelerator: The GPU.
        shape: Sizes of the model.
        engine: For how sequences are shared out where that is not said.

    Source: Pope et al. 2022 (cost of a step of decoding); arXiv:2405.04434 (latent attention). With uniform routing,
    n tokens meet a share 1 - (1 - k / E)^n of the experts.
    """
    gpus = _gpus(request)
    width = _width(request)
    batch = _sequences(request, accelerator, shape, engine)
    alone = max(1, request.attention_parallel)
    heads = max(1, gpus // alone)
    inputs, outputs = request.input_tokens or 1024, request.output_tokens or 1024
    routed = shape.routed_parameters
    met = 1 - (1 - shape.expert_share) ** batch if routed else 0.0
    context = (inputs + outputs / 2) * shape.cached_share
    split = _split(shape, heads)
    memory = accelerator.memory_bytes_s
    moved = 2 * 2 * shape.layers * shape.hidden * batch / alone
    rate = _rate(request, accelerator)
    waits = 0.0 if request.is_disaggregated else batch / outputs
    terms = {
        # While weights come, products of those before are made: the longer of both counts most.
        "weights": hypot(
            (shape.parameters - routed) * _dense_width(shape, width) / heads / memory,
            2 * (shape.parameters - routed) * batch / gpus / rate,
        ),
        "experts": hypot(routed * met * width / gpus / memory, 2 * routed * shape.expert_share * batch / gpus / rate),
        # Weights of four bits that a GPU does not multiply are unpacked before.
        "unpack": routed * met / gpus / memory if width < 1 and rate <= accelerator.tensor_flop_s else 0.0,
        "cache": batch * context * _cache_bytes(request, shape) / split / alone / memory,
        "latent": _LATENT_OPERATIONS
        * shape.latent_heads
        * shape.layers
        * context
        * batch
        / gpus
        / accelerator.tensor_flop_s,
        "layers": 1e-6 * shape.layers,
        "step": 1e-3,
        "exchange_start": 1e-6 * shape.layers if gpus > 1 else 0.0,
        "exchange": moved / accelerator.link_bytes_s if gpus > 1 else 0.0,
        "dispatch": 1e-6 * shape.layers if routed and request.expert_parallel > 1 else 0.0,
        "scheduling": 1e-6 * batch / alone,
        **{name: waits * value for name, value in _prompt(request, accelerator, shape, gpus).items()},
    }
    return terms, batch


def step_parts(request: PredictRequest, terms: Mapping[str, float], engine: Engine) -> dict[str, float]:
    """Return the seconds that each part of a step takes in the engine of a request."""
    own = engine.engines.get(request.backend or "", {})
    return {name: engine.step[name] * own.get(name, 1.0) * value for name, value in terms.items()}


def describe(request: PredictRequest, accelerator: Accelerator, shape: Shape, engine: Engine) -> Signal:
    """Return what the time between tokens of one served model under load looks like.

    Args:
        request: With ``batch`` (sequences at once), ``input_tokens``, ``output_tokens`` and the split.
        accelerator: The GPU.
        shape: Sizes of the model.
        engine: The constants.
    """
    terms, batch = step_terms(request, accelerator, shape, engine)
    parts = step_parts(request, terms, engine)
    step = sum(parts.values())
    gpus, width = _gpus(request), _width(request)
    inputs, outputs = request.input_tokens or 1024, request.output_tokens or 1024
    # What no software beats: what one token meets comes through the memory once.
    least = shape.active_parameters * (width if width >= 1 else _FOUR_BIT_BYTES) / accelerator.memory_bytes_s / gpus
    read = terms["weights"] + terms["experts"]
    return Signal(
        physics=log(1e3 * step),
        features=_features(request, accelerator, parts, batch),
        keys={"gpu": accelerator.id, "model": shape.name},
        unit="ms",
        size=shape.parameters,
        batch=request.batch or 1.0,
        gpus=gpus,
        higher_is_better=False,
        notes=(
            f"{1e3 * read:.3g} ms a step to read weights in {request.precision}, "
            f"{1e3 * terms['cache']:.3g} ms a cache, at the memory's ceiling",
            f"{batch:.0f} sequence{'' if batch == 1 else 's'} at once, {inputs} tokens in and {outputs} out each",
        ),
        bound=log(1e3 * least),
        doubt=_doubt(request, engine),
        cautions=_too_large(shape.parameters * width, accelerator, gpus),
    )


def _features(
    request: PredictRequest, accelerator: Accelerator, parts: Mapping[str, float], batch: float
) -> dict[str, float]:
    step = sum(parts.values())
    prompts = sum(value for name, value in parts.items() if name.startswith("prompt"))
    return {
        **{name: value / step for name, value in parts.items() if not name.startswith("prompt")},
        "prompts": prompts / step,
        "time": log(1e3 * step),
        "batch": log2(batch),
        "load": log2((request.batch or 1.0) / _gpus(request)),
        "gpus": log2(_gpus(request)),
        "attention_parallel": log2(request.attention_parallel),
        "expert_parallel": log2(request.expert_parallel),
        "inputs": log2((request.input_tokens or 1024) / 1024),
        "outputs": log2((request.output_tokens or 1024) / 1024),
        "width": log2(_width(request)),
        "disaggregated": 1.0 if request.is_disaggregated else 0.0,
        "before_blackwell": 1.0 if accelerator.compute_capability < _BLACKWELL else 0.0,
        **{f"backend_{name}": 1.0 if request.backend == name else 0.0 for name in _BACKENDS},
    }


def first_terms(request: PredictRequest, accelerator: Accelerator, shape: Shape, engine: Engine) -> dict[str, float]:
    """Return what the wait for the first token hangs on: seconds at the hardware's ceilings, and numbers of sequences.

    Returns:
        ``layers``, ``step`` and the parts of a prompt in seconds; ``each``, the sequences of one machine that reads
        prompts; ``outputs``, tokens of an answer; ``batch``; ``full``, how many sequences wait for each that has room.
    """
    terms, batch = step_terms(request, accelerator, shape, engine)
    step = sum(step_parts(request, terms, engine).values())
    gpus = request.prefill_gpus or _gpus(request)
    alone = 1 if request.prefill_gpus else min(gpus, max(1, request.attention_parallel))
    return {
        "layers": 1e-6 * shape.layers,
        "step": step,
        **_prompt(request, accelerator, shape, gpus, alone),
        "each": (request.batch or 1.0) / (request.prefill_workers or 1) / alone,
        "outputs": request.output_tokens or 1024,
        "batch": request.batch or 1.0,
        "full": max(0.0, (request.batch or 1.0) / batch - 1) if not request.is_disaggregated else 0.0,
    }


def first_factors(request: PredictRequest, engine: Engine) -> dict[str, float]:
    """Return the constants of the wait for the first token, for the engine and the layout of a request."""
    factors = {**engine.prompt, **engine.first["disaggregated" if request.is_disaggregated else "aggregated"]}
    own = engine.engines.get(request.backend or "", {})
    return {name: value * own.get(f"first_{name}", 1.0) for name, value in factors.items()}


def first_parts(terms: Mapping[str, Any], factors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the wait for the first token in seconds; takes numbers, or arrays of them.

    Sequences that began together end together, and their next prompts meet: a prompt waits for a share of them all
    (``wave``). Prompts take a share ρ = n p / (n p + m s) of the time, of n sequences, p seconds a prompt and m steps
    of s seconds, and those that meet by chance wait ρ / (1 - ρ) of a prompt (``queue``). What has no room in the cache
    waits until an answer ends (``full``).

    Source: Kleinrock 1975, volume 1 (waiting in an M/M/1 queue).
    """
    prompt = sum(factors[name] * terms[name] for name in PROMPT)
    load, steps = terms["each"] * prompt, terms["outputs"] * terms["step"]
    return {
        "constant": factors["constant"] * 1e-3,
        "layers": factors["layers"] * terms["layers"],
        "step": factors["step"] * terms["step"],
        "prompt": prompt,
        "wave": factors["wave"] * load,
        "queue": factors["queue"] * prompt * load / (steps + 1e-3 * load),
        "burst": factors["burst"] * load * load / (load + steps),
        "scheduling": factors["scheduling"] * 1e-6 * terms["batch"],
        "full": factors["full"] * terms["full"] * steps,
    }


def describe_first(request: PredictRequest, accelerator: Accelerator, shape: Shape, engine: Engine) -> Signal:
    """Return what the wait for the first token looks like; arguments as of :func:`describe`."""
    terms = first_terms(request, accelerator, shape, engine)
    parts = first_parts(terms, first_factors(request, engine))
    wait = sum(parts.values())
    step = step_parts(request, step_terms(request, accelerator, shape, engine)[0], engine)
    gpus = request.prefill_gpus or _gpus(request)
    load = terms["each"] * parts["prompt"]
    busy = load / (load + terms["outputs"] * terms["step"])
    ideal = sum(_prompt(request, accelerator, shape, gpus).values())
    features = {
        **_features(request, accelerator, step, _sequences(request, accelerator, shape, engine)),
        **{f"first_{name}": value / wait for name, value in parts.items()},
        "wait": log(1e3 * wait),
        "busy": busy,
        "prefill_gpus": log2(gpus),
        "prefill_workers": log2(request.prefill_workers or 1),
    }
    return Signal(
        physics=log(1e3 * wait),
        features=features,
        keys={"gpu": accelerator.id, "model": shape.name},
        unit="ms",
        size=shape.parameters,
        batch=request.batch or 1.0,
        gpus=_gpus(request),
        higher_is_better=False,
        notes=(f"prompts take {busy:.0%} of the time", f"{1e3 * ideal:.3g} ms a prompt at the GPU's ceiling"),
        # Software may multiply in half the bits, and a prompt may be found in a cache.
        bound=None,
        doubt=_doubt(request, engine),
    )


def _doubt(request: PredictRequest, engine: Engine) -> float:
    """Return how much wider an interval is where nobody says how many machines decode."""
    return engine.unstated.get(request.metric, 0.0) if request.is_disaggregated and not request.workers else 0.0


def holds(request: PredictRequest, accelerator: Accelerator, shape: Shape) -> bool:
    """Tell whether the weights of a model fit into the GPUs of a machine."""
    return shape.parameters * _width(request) <= (accelerator.memory_gb or math.inf) * 1e9 * _gpus(request)


def _too_large(weight_bytes: float, accelerator: Accelerator, gpus: int) -> tuple[str, ...]:
    """Return the sentence that a model whose weights alone exceed the memory deserves, or nothing."""
    if accelerator.memory_gb is None or weight_bytes <= accelerator.memory_gb * 1e9 * gpus:
        return ()
    room = f"{accelerator.memory_gb:.4g} GB" if gpus == 1 else f"{gpus} × {accelerator.memory_gb:.4g} GB"
    return (f"weights of {weight_bytes / 1e9:.3g} GB do not fit into {room}: take more GPUs or fewer bits",)


def _narrow_rate(accelerator: Accelerator) -> float:
    """Return the operations a second with sums in 16 bits, at which boards for games are twice as fast as with 32."""
    if accelerator.compute_capability < _AMPERE:
        return accelerator.tensor_flop_s
    return max(accelerator.tensor_flop_s, 4 * (accelerator.fp32_flop_s or 0.0))


def prompt_seconds(
    tokens: float, weight_bytes: float, accelerator: Accelerator, shape: Shape, stream: Mapping[str, float]
) -> float:
    """Return the seconds that one stream takes to read a prompt, in passes of some hundred tokens.

    Each pass starts its kernels, layer by layer, and reads the weights; narrow matrices and passes of few tokens leave
    multiplying units idle; attention grows with the square of the prompt.

    Args:
        tokens: Of the prompt.
        weight_bytes: Read in one pass.
        accelerator: The GPU.
        shape: Sizes of the model.
        stream: Constants of ``serving.json``.
    """
    rate = _narrow_rate(accelerator)
    at_once = min(tokens, _PASS_TOKENS)
    passes = ceil(tokens / _PASS_TOKENS)
    idle = sqrt(at_once**2 + stream["tile"] ** 2) / at_once
    idle *= 1 + math.pow(stream["narrow"] / shape.hidden, stream["narrow_power"])
    return (
        passes * (shape.layers * stream["layer"] + stream["step"])
        + passes * stream["weights"] * weight_bytes / accelerator.memory_bytes_s
        + stream["products"] * idle * 2 * shape.active_parameters * tokens / rate
        + stream["attention"] * 2 * shape.layers * shape.hidden * tokens**2 / rate
    )


def describe_decode(
    request: PredictRequest, accelerator: Accelerator, shape: Shape, stream: Mapping[str, float]
) -> Signal:
    """Return what one stream on one machine looks like: bytes read a token, or operations of a prompt.

    Args:
        request: With ``weight_bytes``, and ``input_tokens`` where a prompt is read rather than tokens made.
        accelerator: The GPU.
        shape: Sizes of the model.
        stream: Constants of ``serving.json``.

    Source: Pope et al. 2022.
    """
    size = request.weight_bytes or shape.parameters * _BYTES.get(request.precision, 2.0)
    held = "" if request.weight_bytes else f", weights in {request.precision}"
    cautions = _too_large(size, accelerator, 1)
    size *= min(1.0, shape.active_parameters / shape.parameters)
    tokens = request.input_tokens or 0
    if tokens:
        seconds = prompt_seconds(tokens, size, accelerator, shape, stream) / tokens
        # Software that multiplies in 8 bits is twice as fast.
        least = shape.active_parameters / _narrow_rate(accelerator)
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
