"""How fast a job runs: what the GPU could do at best, times the share that real runs reach."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from provision.errors import DataError, ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu, Utilisation
from provision.planner.memory import BYTES, Layout, Serving, Training, cache_bytes_per_token
from provision.planner.shape import Shape
from provision.predict.hardware import Hardware
from provision.records import record

__all__ = ["NoSpeedError", "Roofline", "Speed", "Speeds", "peak_tflops", "training_flops"]

_TERA = 1e12
_GIGA = 1e9
_HALF = ("bf16", "fp16")


class NoSpeedError(Exception):
    """The facts do not tell how fast this is; the text says which fact is missing."""


@record
class Speed:
    """A rate with the range most runs lie in.

    Attributes:
        low: A tenth of the runs are slower; ``median`` is the middle, ``high`` what a tenth exceed.
        unit: ``tokens/s`` of the whole job, or ``requests/s`` of one replica.
        mode: Where it comes from: ``roofline``, or the mode of a forecast.
        basis: What it rests on, one sentence each.
    """

    low: float
    median: float
    high: float
    unit: str
    mode: str
    basis: tuple[str, ...] = ()


class Speeds(Protocol):
    """What the plan asks how fast something is. Both raise :class:`NoSpeedError` where they cannot tell."""

    def train(self, shape: Shape, gpu: Gpu, layout: Layout, training: Training, *, nodes: int, link: str) -> Speed:
        """Return the tokens a second of the whole job; ``link`` joins the GPUs of a node."""

    def serve(self, shape: Shape, gpu: Gpu, layout: Layout, serving: Serving, *, output: int, share: float) -> Speed:
        """Return the requests a second of one replica."""


def peak_tflops(gpu: Gpu, precision: str) -> float | None:
    """Return the dense peak of a GPU in a precision, in 10¹² operations a second; ``None`` where it is unknown."""
    if precision in _HALF:
        return gpu.tflops_fp16_tensor
    if precision in ("fp8", "int8"):
        return gpu.tflops_fp8
    if precision == "tf32":
        return gpu.tflops_tf32
    if precision in ("fp4", "int4"):
        # Weights of four bits are multiplied in sixteen.
        return gpu.tflops_fp16_tensor
    return gpu.tflops_fp32


def training_flops(shape: Shape, training: Training) -> float:
    """Return the operations that training takes for one token, recomputation left out.

    Source: Kaplan et al. (arXiv:2001.08361), 6 N, and 12 × layers × heads × head size × sequence for attention (PaLM,
    arXiv:2204.02311, appendix B). Frozen weights need no gradient of their own: 4 N.
    """
    each = 6.0 if training.method == "full" else 4.0
    attention = 12.0 * shape.layers * shape.heads * shape.head_size * training.sequence
    return each * shape.active_parameters + attention


class Roofline:
    """Speeds from peaks and the utilisation that published runs reach.

    Args:
        matrix: The facts.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._rows: tuple[Utilisation, ...] = matrix.rows("planning.toml", "utilisation")
        self._hardware = Hardware(matrix)
        limits = {row.id: row.value for row in matrix.rows("planning.toml", "limit")}
        try:
            self._exponent = limits["scaling_exponent"]
            self._pcie_low = limits["pcie_low_share"]
        except KeyError as error:
            raise DataError(f"planning.toml: the limit `{error.args[0]}` is missing") from error

    def _peak(self, gpu: Gpu, precision: str) -> float:
        """Return the peak of a GPU, where its row has none by the rate of its architecture's tensor cores."""
        peak = peak_tflops(gpu, precision)
        if peak is None and precision in (*_HALF, "fp4", "int4"):
            with suppress(ProvisionError):
                peak = self._hardware.find(gpu.id).tensor_flop_s / _TERA
        return _known(peak, gpu, f"peak in {precision}")

    def _utilisation(self, work: str, gpu: str, precision: str) -> Utilisation:
        precision = "bf16" if precision in _HALF else precision
        rows = [row for row in self._rows if row.work == work and row.gpu in (None, gpu)]
        rows = [row for row in rows if row.precision in (None, precision)]
        if not rows:
            raise DataError(f"planning.toml: no utilisation of `{work}` without a GPU")
        return max(rows, key=lambda row: (row.gpu is not None, row.precision is not None))

    def train(self, shape: Shape, gpu: Gpu, layout: Layout, training: Training, *, nodes: int, link: str) -> Speed:
        """Return the tokens a second of the whole job; ``link`` joins the GPUs of a node."""
        peak = self._peak(gpu, training.precision)
        row = self._utilisation("train", gpu.id, training.precision)
        # A node more brings less than a node: the rest waits for the network.
        effective = layout.gpus / nodes * nodes**self._exponent
        slow = self._pcie_low if link == "pcie" and layout.gpus > 1 else 1.0
        # The first micro-batch fills a pipeline and the last one drains it (GPipe, arXiv:1811.06965).
        effective *= training.micro_batches / (training.micro_batches + layout.pipeline - 1)
        ceiling = effective * peak * _TERA / training_flops(shape, training)
        said: tuple[str, ...] = (
            f"{row.median:.0%} of {peak:g} TFLOPS in {training.precision} ({row.id}, {row.runs} runs)",
        )
        reading, memory = self._reading(shape, gpu, training), self._utilisation("decode", gpu.id, training.precision)
        if reading * memory.median * effective < ceiling * row.median * (1 + slow) / 2:
            tokens = training.micro_batch * training.sequence
            said += (f"passes of {tokens} tokens wait for the weights: a larger `--micro-batch` or `--seq` is faster",)
        return Speed(
            low=min(ceiling * row.low * slow, reading * memory.low * effective),
            median=min(ceiling * row.median * (1 + slow) / 2, reading * memory.median * effective),
            high=min(ceiling * row.high, reading * memory.high * effective),
            unit="tokens/s",
            mode="roofline",
            basis=said,
        )

    def _reading(self, shape: Shape, gpu: Gpu, training: Training) -> float:
        """Return the tokens a second and GPU at which weights come through the memory: forward, and backward again.

        Source: Williams, Waterman, Patterson 2009 (roofline).
        """
        tokens = training.micro_batch * training.sequence
        read = 2 * BYTES[training.precision] * _read_parameters(shape, tokens)
        return tokens * _known(gpu.memory_bandwidth_gb_s, gpu, "memory bandwidth") * _GIGA / read

    def serve(self, shape: Shape, gpu: Gpu, layout: Layout, serving: Serving, *, output: int, share: float) -> Speed:
        """Return the requests a second of one replica, all of its sequences busy.

        A prompt is computed at once, then every token of the answer reads weights and cache once.
        """
        peak = self._peak(gpu, serving.precision) * share
        bandwidth = _known(gpu.memory_bandwidth_gb_s, gpu, "memory bandwidth") * share
        compute = self._utilisation("prefill", gpu.id, serving.precision)
        memory = self._utilisation("decode", gpu.id, serving.precision)
        prompt = max(serving.sequence - output, 1)
        flops = 2.0 * shape.active_parameters * prompt
        weights = BYTES[serving.precision] * _read_parameters(shape, serving.concurrent)
        middle = serving.concurrent * (prompt + output / 2)
        cache = middle * cache_bytes_per_token(shape, serving.cache_precision)

        def rate(of_compute: float, of_memory: float) -> float:
            prefill = flops / (peak * _TERA * of_compute * layout.tensor)
            token = (weights + cache) / (bandwidth * _GIGA * of_memory * layout.tensor)
            # Prompts queue for the compute that tokens in flight leave.
            return serving.concurrent / (serving.concurrent * prefill + output * token)

        said = f"{memory.median:.0%} of {bandwidth:g} GB/s between tokens"
        prompts = f"{compute.median:.0%} of {peak:g} TFLOPS in prompts"
        return Speed(
            low=rate(compute.low, memory.low),
            median=rate(compute.median, memory.median),
            high=rate(compute.high, memory.high),
            unit="requests/s",
            mode="roofline",
            basis=(said, prompts),
        )


def _read_parameters(shape: Shape, concurrent: int) -> float:
    """Return how many parameters a step reads: with experts, more of them the more sequences there are."""
    if shape.experts == 1:
        return float(shape.parameters)
    unused = (1 - shape.experts_active / shape.experts) ** concurrent
    idle = (shape.parameters - shape.active_parameters) / (1 - shape.experts_active / shape.experts)
    return shape.parameters - idle * unused if shape.experts > shape.experts_active else float(shape.parameters)


def _known(value: float | None, gpu: Gpu, what: str) -> float:
    if not value:
        raise NoSpeedError(f"the facts have no {what} of {gpu.name}")
    return float(value)
