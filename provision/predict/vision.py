"""Images a second of convolutional networks and vision transformers."""

from __future__ import annotations

import re
from math import log

from provision.predict.hardware import Accelerator
from provision.predict.networks import Network
from provision.predict.request import PredictRequest
from provision.predict.signal import Signal
from provision.predict.training import joined

UNIT = "images/s"

_SCALING = 0.95
"""Share of ideal that each doubling of GPUs keeps: what Lambda's published runs have in the median."""
_EXACT_FLOOR = 0.005
"""Below so many 10⁹ multiply-adds the tables' two digits say nothing."""

_TRAITS = {
    "plain_attention": r"^(vit|deit|beit|eva|cait|flexivit|naflexvit|sam|dino|aimv|siglip|xcit|pe_|crossvit|tnt)",
    "window_attention": r"^(swin|maxvit|maxxvit|nest|twins|focal|davit|gcvit|hiera|samvit|halo|volo|mvit|pvt|coat_)",
    "depthwise": r"(mobilenet|efficientnet|mnasnet|ghost|mixnet|tinynet|hardcore|fbnet|rexnet|lcnet|spnas|mobileone|"
    r"mobilevit|edgenext|fastvit|repvit|shvit|starnet|xception|mobilevitv|tiny_vit|efficientvit|semnas)",
    "large_depthwise": r"(convnext|convformer|caformer|poolformer|mambaout|replknet|metaformer|inception_next|"
    r"convmixer|conv2former|rdnet|fasternet|vovnet_dw)",
    "grouped": r"(resnext|regnet|nf_reg|ig_|swsl_resnext|ssl_resnext|dpn|cspresnext)",
    "concatenating": r"(densenet|dla|hrnet|res2net|res2next|inception|vovnet|hgnet|hardnet|dpn|selecsls|nasnet)",
    "mixer": r"(mixer|mlp)",
    "squeezing": r"(^se|senet|_se|eca|resnest|skres|resnetrs|gcres|regnety|regnetz|efficientnet|mobilenetv3|nfnet|"
    r"tresnet)",
}
_FAMILY = re.compile(r"^[a-z]+")


def family(model: str) -> str:
    """Return the letters a model's name begins with: ``resnet`` of ``resnet50d``."""
    found = _FAMILY.match(model.lower())
    return found[0] if found else model.lower()


def describe(request: PredictRequest, accelerator: Accelerator, network: Network) -> Signal:
    """Return what a run of one network looks like.

    Args:
        request: With ``batch`` and how the network is run.
        accelerator: The GPU.
        network: Operations, activations and parameters of one image.

    Source: Williams, Waterman, Patterson 2009 (roofline); Dollár, Singh, Girshick 2021 (activations tell run time).
    """
    batch = request.batch or 256.0
    gmacs = max(network.gmacs, _EXACT_FLOOR)
    passes = 3.0 if request.task == "vision-training" else 1.0
    is_half = request.precision not in {"fp32", "tf32"}
    peak = accelerator.tensor_flop_s * (1.0 if is_half else 0.5)
    compute = passes * 2e9 * gmacs / (0.5 * peak)
    traffic = passes * 1e6 * max(network.macts_m, 0.05) * 4 / (0.8 * accelerator.memory_bytes_s)
    weights = 2 * network.parameters / accelerator.memory_bytes_s / batch
    drag, unsure = joined(request)
    # Each GPU has images of its own, and gradients are exchanged: each doubling keeps most of it.
    together = log(request.gpus) * (1 + log(_SCALING) / log(2)) - (drag if passes > 1 else 0.0)
    physics = together - log(compute + traffic + weights)
    name = request.model or ""
    operations = log(gmacs)
    activations = log(max(network.macts_m, 0.05))
    parameters = log(max(network.parameters, 1e4) / 1e6)
    pixels = log(network.image_size / 224)
    size = log(batch / 256)
    balance = log(compute / traffic)
    compiled = 1.0 if request.is_compiled else 0.0
    channels_last = 1.0 if request.layout == "nhwc" else 0.0
    features = {
        "operations": operations,
        "activations": activations,
        "parameters": parameters,
        "pixels": pixels,
        "batch": size,
        "operations_per_activation": operations - activations,
        "operations_per_parameter": operations - parameters,
        "balance": balance,
        "balance_squared": balance * balance,
        "operations_squared": operations * operations,
        "activations_squared": activations * activations,
        "operations_activations": operations * activations,
        "parameters_operations": parameters * operations,
        "compiled": compiled,
        "compiled_balance": compiled * balance,
        "compiled_activations": compiled * activations,
        "channels_last": channels_last,
        "channels_last_balance": channels_last * balance,
        "pure_half": 1.0 if request.precision in {"bf16", "fp16", "half"} else 0.0,
        "recent": _recency(request.framework),
        "recent_channels_last": _recency(request.framework) * channels_last,
        "guessed": 0.0 if network.is_exact else 1.0,
        "training": 1.0 if passes > 1 else 0.0,
        "training_balance": balance if passes > 1 else 0.0,
        **{f"trait_{trait}": 1.0 if re.search(pattern, name.lower()) else 0.0 for trait, pattern in _TRAITS.items()},
    }
    traits = {key: value for key, value in features.items() if key.startswith("trait_")}
    features |= {f"{key}_compiled": value * compiled for key, value in traits.items()}
    features |= {f"{key}_channels_last": value * channels_last for key, value in traits.items()}
    return Signal(
        physics=physics,
        features=features,
        keys={
            "gpu": accelerator.id,
            "exact": "exact" if network.is_exact else "",
            "setup": "/".join(
                (accelerator.id, request.precision, request.layout or "", "c" if compiled else "e", request.task)
            ),
            "model": f"{name.lower()}@{network.image_size}",
        },
        unit=UNIT,
        size=network.parameters,
        batch=batch,
        gpus=request.gpus,
        notes=(
            f"{network.gmacs:.3g} GMAC and {network.macts_m:.3g} million activations an image",
            *(() if network.is_exact else ("operations are guessed from the number of parameters",)),
        ),
        bound=log(request.gpus * peak / (passes * 2e9 * gmacs)) if network.is_exact else None,
        doubt=unsure if passes > 1 else 0.0,
    )


def _recency(framework: str | None) -> float:
    """Return how new a PyTorch is, 0 to 1: ``pt113`` → 0, ``2.9.1`` and later → 1; the middle where it is not said."""
    found = re.search(r"(\d)\.?(\d{1,2})", framework or "")
    if not found:
        return 0.5
    major, minor = int(found[1]), int(found[2][:2])
    # The tables write `pt240` for 2.4 and `pt113` for 1.13.
    if "." not in (framework or "") and major > 1:
        minor = int(found[2][0])
    return min(max((major - 2) * 1.0 + minor / 9, 0.0), 1.0)
