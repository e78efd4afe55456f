"""Bus bandwidth of NCCL's collective operations."""

from __future__ import annotations

from math import exp, log

from provision.errors import UsageError
from provision.predict.hardware import Accelerator
from provision.predict.request import PredictRequest
from provision.predict.signal import Signal

UNIT = "GB/s"
OPERATIONS = ("all_gather", "all_reduce", "alltoall", "reduce_scatter", "broadcast", "reduce", "sendrecv")
_NAMES = {
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "all_to_all": "alltoall",
    "reducescatter": "reduce_scatter",
}


_GPUS_MEASURED = 8
"""Of one machine, in the tables that were learnt from."""


def bus_factor(operation: str, gpus: float) -> float:
    """Return bus bandwidth over message size by time.

    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md.
    """
    if operation == "all_reduce":
        return 2 * (gpus - 1) / gpus
    if operation in {"all_gather", "reduce_scatter", "alltoall"}:
        return (gpus - 1) / gpus
    return 1.0


def canonical(operation: str) -> str:
    """Return an operation's name as the tables write it.

    Raises:
        UsageError: No such operation.
    """
    name = operation.strip().lower().replace("-", "_").removesuffix("_perf")
    name = _NAMES.get(name, name)
    if name not in OPERATIONS:
        raise UsageError(f"no collective `{operation}`", hints=(f"choose one of {', '.join(OPERATIONS)}",))
    return name


def describe(request: PredictRequest, accelerator: Accelerator) -> Signal:
    """Return what one collective looks like.

    Time is a latency that grows with the number of GPUs, and the message's share of the link. GPUs made of two dies
    answer later; switches that reduce by themselves (from Hopper on, with eight GPUs) spare an all-reduce half its way.

    Args:
        request: With ``operation``, ``message_bytes`` and ``gpus``.
        accelerator: The GPU; eight of one node share its links.

    Raises:
        UsageError: An operation that NCCL does not have, or fewer than two GPUs.

    Source: Hockney 1994 (latency and bandwidth); NCCL documentation, NCCL_NVLS_ENABLE.
    """
    if request.gpus < 2:
        raise UsageError("a collective needs two GPUs or more", hints=("give `--gpus 8`",))
    operation = canonical(request.operation or "all_reduce")
    message = request.message_bytes or 2.0**29
    factor = bus_factor(operation, request.gpus)
    latency = 5e-6 * (1 + 0.15 * (request.gpus - 1)) * (1.6 if operation == "all_reduce" else 1.0)
    latency *= 1.5 if accelerator.dies > 1 else 1.0
    wire = message * factor / (0.75 * accelerator.link_bytes_s)
    seconds = latency + wire
    physics = log(message * factor / seconds / 1e9)
    weight = log(wire / latency)
    # The share of the time that is bandwidth: 0 for small messages, 1 for large ones.
    share = 1 / (1 + exp(-weight))
    gpus = log(request.gpus / 4)
    link = log(accelerator.link_bytes_s / 450e9)
    is_reducing = 1.0 if operation == "all_reduce" else 0.0
    in_switch = (
        is_reducing if accelerator.is_switched and accelerator.compute_capability >= 9 and request.gpus >= 8 else 0.0
    )
    features: dict[str, float] = {
        "share": share,
        "share_squared": share * share,
        "middle": share * (1 - share),
        "link_share": link * share,
        "gpus": gpus,
        "gpus_share": gpus * share,
        "gpus_squared": gpus * gpus,
        "gpus_squared_share": gpus * gpus * share,
        "gpus_middle": gpus * share * (1 - share),
        "two_dies": 1.0 if accelerator.dies > 1 else 0.0,
        "two_dies_small": (1 - share) if accelerator.dies > 1 else 0.0,
        "in_switch": in_switch,
        "in_switch_share": in_switch * share,
        "in_switch_large": in_switch * share**4,
        "in_switch_link_share": in_switch * link * share,
        "very_large": share**8,
        "very_large_link": share**8 * link,
        "gpus_very_large": share**8 * gpus,
        "shared_bus": 0.0 if accelerator.is_switched else 1.0,
        "shared_bus_share": 0.0 if accelerator.is_switched else share,
        "shared_bus_gpus_share": 0.0 if accelerator.is_switched else share * gpus,
    }
    for name in ("all_gather", "all_reduce", "alltoall", "reduce_scatter"):
        here = 1.0 if name == operation else 0.0
        features |= {
            f"{name}": here,
            f"{name}_share": here * share,
            f"{name}_middle": here * share * (1 - share),
            f"{name}_gpus": here * gpus,
            f"{name}_gpus_share": here * gpus * share,
            f"{name}_large": here * share**4,
        }
    for centre in range(-6, 10):
        # Steps between NCCL's protocols and algorithms, whatever the size at which they lie.
        features[f"bump_{centre}"] = exp(-((weight - centre) ** 2))
    cautions: tuple[str, ...] = ()
    if request.gpus > _GPUS_MEASURED:
        cautions = (
            f"measured were machines of up to {_GPUS_MEASURED} GPUs: where these {request.gpus} are in several, the "
            "network between them decides, and it is not in this forecast",
        )
    return Signal(
        cautions=cautions,
        physics=physics,
        features=features,
        keys={
            "gpu": accelerator.id,
            "link": f"{accelerator.link_bytes_s / 1e9:.0f}",
            "fabric": "switched" if accelerator.is_switched else "",
        },
        unit=UNIT,
        size=message,
        batch=message,
        gpus=request.gpus,
        notes=(
            f"links of {accelerator.link_bytes_s / 1e9:.4g} GB/s each way, {100 * share:.0f} % of the time at work",
        ),
    )
