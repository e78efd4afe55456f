"""What is asked of a forecast, and what it answers."""

from __future__ import annotations

from typing import ClassVar

from provision.errors import UsageError
from provision.records import record

TASKS = ("train", "serve", "decode", "vision-inference", "vision-training", "collective")
_LARGEST = 1e18
"""Beyond it logarithms of products would leave the range of numbers."""


@record
class PredictRequest:
    """One run whose speed is wanted. What is not known stays absent; nothing is taken to be zero.

    ``task`` is one of ``TASKS``. ``train`` and ``serve`` speak of language models, ``decode`` of one stream of tokens
    on one machine, ``collective`` of NCCL. Parameters are counts, ``message_bytes`` bytes, ``image_size`` pixels of an
    edge, ``gmacs`` 10⁹ multiply-adds and ``macts_m`` 10⁶ activations of one image. ``micro_batch`` is per GPU.
    ``stack`` names the training software: ``fsdp`` (PyTorch) or ``megatron``.
    ``nodes`` hold the GPUs and ``link`` joins those of a node (``pcie``, ``nvlink``, ``nvswitch``), where that is said.
    ``metric`` of serving is the time between tokens (``tpot``) or to the first one (``ttft``), in milliseconds.
    Where serving is disaggregated, ``workers`` decode the sequences of ``batch`` and ``prefill_workers`` read prompts,
    on ``prefill_gpus`` each. ``cached_share`` is the part of a prompt that a prefix cache has, from 0 to below 1.
    """

    task: str
    gpu: str
    gpus: int = 1
    nodes: int | None = None
    link: str | None = None
    model: str | None = None
    precision: str = "bf16"
    stack: str | None = None
    parameters: float | None = None
    active_parameters: float | None = None
    layers: int | None = None
    hidden: int | None = None
    sequence: int | None = None
    micro_batch: float | None = None
    global_batch: float | None = None
    recompute: str | None = None
    is_compiled: bool | None = None
    is_finetune: bool = False
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    input_tokens: int | None = None
    output_tokens: int | None = None
    batch: float | None = None
    backend: str | None = None
    metric: str = "tpot"
    is_disaggregated: bool = False
    workers: int | None = None
    prefill_workers: int | None = None
    prefill_gpus: int | None = None
    cached_share: float | None = None
    attention_parallel: int = 1
    weight_bytes: float | None = None
    image_size: int | None = None
    gmacs: float | None = None
    macts_m: float | None = None
    layout: str | None = None
    framework: str | None = None
    operation: str | None = None
    message_bytes: float | None = None

    _COUNTS: ClassVar = (
        "gpus",
        "nodes",
        "parameters",
        "active_parameters",
        "layers",
        "hidden",
        "sequence",
        "micro_batch",
        "global_batch",
        "tensor_parallel",
        "pipeline_parallel",
        "context_parallel",
        "expert_parallel",
        "input_tokens",
        "output_tokens",
        "batch",
        "attention_parallel",
        "workers",
        "prefill_workers",
        "prefill_gpus",
        "weight_bytes",
        "image_size",
        "gmacs",
        "macts_m",
        "message_bytes",
    )
    _WORDS: ClassVar = {
        "recompute": ("none", "selective", "full"),
        "stack": ("fsdp", "megatron"),
        "metric": ("tpot", "ttft"),
    }

    def __post_init__(self) -> None:
        """Refuse what no run can be.

        Raises:
            UsageError: An unknown word, or a size that is not above zero or that nothing in the world has.
        """
        if self.task not in TASKS:
            raise UsageError(f"no task `{self.task}`", hints=(f"choose one of {', '.join(TASKS)}",))
        for name in self._COUNTS:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"{name.replace('_', ' ')} is {value}, and must be a number above zero")
            if value is not None and value > _LARGEST:
                raise UsageError(f"{name.replace('_', ' ')} is {value:.3g}, and nothing has so many")
        if self.cached_share is not None and not 0 <= self.cached_share < 1:
            raise UsageError(f"a cached share of {self.cached_share:g} is none", hints=("give one from 0 to below 1",))
        for name, known in self._WORDS.items():
            value = getattr(self, name)
            if value is not None and value not in known:
                raise UsageError(f"{name} `{value}` is not known", hints=(f"choose one of {', '.join(known)}",))


@record
class Forecast:
    """A speed with its interval.

    ``value``, ``low`` and ``high`` are in ``unit``; the true value lies between the last two with probability
    ``confidence``. ``mode`` is ``cold`` (from specifications), ``transfer`` (a measurement elsewhere is behind it) or
    ``calibrated`` (probe runs of this very GPU are). ``basis`` says what it rests on, one sentence each;
    ``extrapolates`` what lies outside of what was learnt from, ``cautions`` what else is to be known before it is used.
    """

    value: float
    low: float
    high: float
    unit: str
    mode: str
    confidence: float = 0.8
    basis: tuple[str, ...] = ()
    extrapolates: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
