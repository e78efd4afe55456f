"""How fast a placed job runs: the forecast of predict for the very run, for all of its GPUs or one replica."""

from __future__ import annotations

import math

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.planner.memory import Layout, Serving, Training
from provision.planner.shape import Shape
from provision.predict.networks import Network
from provision.predict.predictor import Predictor
from provision.predict.request import Forecast, PredictRequest
from provision.records import record, replace

_PEAK = 2.33
"""Standard deviations above the mean that 99 of 100 moments of a random load stay below."""
_CLOSE_ENOUGH = 1.1
_MILLI = 1e-3


class NoSpeedError(Exception):
    """Nothing tells how fast this is, or it is too slow; the text says which."""


@record
class Objectives:
    """What a served model must keep, in milliseconds: to the first token, and between tokens."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None


@record
class Speed:
    """A rate with the range four of five runs lie in.

    Attributes:
        low: A tenth of the runs are slower; ``median`` is the middle, ``high`` what a tenth exceed.
        unit: ``tokens/s`` or ``images/s`` of the whole job, or ``requests/s`` of one replica.
        mode: That of the forecast.
        request: The run that was forecast; ``provision predict`` answers the same for it.
        basis: What it rests on, one sentence each.
        ttft_ms: Of serving, at this rate: to the first token, and between tokens in ``tpot_ms``.
    """

    low: float
    median: float
    high: float
    unit: str
    mode: str
    request: PredictRequest
    basis: tuple[str, ...] = ()
    ttft_ms: float | None = None
    tpot_ms: float | None = None


class Speeds:
    """Asks predict, each run once. What it cannot tell raises :class:`NoSpeedError`.

    Args:
        matrix: The facts.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._predictor = Predictor(matrix)
        self._known: dict[PredictRequest, Forecast | ProvisionError] = {}

    def train(self, shape: Shape, gpu: Gpu, layout: Layout, training: Training, *, nodes: int, link: str) -> Speed:
        """Return the tokens a second of the whole job; ``link`` joins the GPUs of a node."""
        request = PredictRequest(
            task="train",
            gpu=gpu.id,
            gpus=layout.gpus,
            nodes=nodes,
            link=link,
            model=shape.name,
            precision=training.precision,
            parameters=float(shape.parameters),
            active_parameters=float(shape.active_parameters),
            layers=shape.layers,
            hidden=shape.hidden,
            sequence=training.sequence,
            micro_batch=float(training.micro_batch),
            global_batch=float(training.micro_batch * training.micro_batches * layout.data),
            # What is kept in the memory of the machine is the input of each layer, as with `full`.
            recompute="full" if training.checkpointing == "offload" else training.checkpointing,
            is_compiled=training.is_compiled,
            is_finetune=training.method != "full",
            tensor_parallel=layout.tensor,
            pipeline_parallel=layout.pipeline,
        )
        return _speed(request, self._ask(request), layout.gpus, "tokens/s")

    def images(
        self, network: Network, gpu: Gpu, layout: Layout, *, batch: int, nodes: int, link: str, task: str, name: str
    ) -> Speed:
        """Return the images a second of the whole job, with ``batch`` of them on a GPU at once."""
        request = PredictRequest(
            task=task,
            gpu=gpu.id,
            gpus=layout.gpus,
            nodes=nodes,
            link=link,
            model=name,
            precision="amp",
            batch=float(batch),
            image_size=network.image_size,
            parameters=network.parameters,
            gmacs=network.gmacs,
            macts_m=network.macts_m,
            is_compiled=False,
            layout="nchw",
        )
        return _speed(request, self._ask(request), layout.gpus, "images/s")

    def serve(
        self,
        shape: Shape,
        gpu: Gpu,
        layout: Layout,
        serving: Serving,
        *,
        output: int,
        share: float,
        objectives: Objectives | None = None,
    ) -> Speed:
        """Return the requests a second of one replica: as many as keep its sequences, and what is asked of them.

        At λ requests a second, λ × (first token + answer) sequences are at work on average (Little's law), and of a
        random load 99 of 100 moments stay below that and 2.33 times its root. The most sequences that fit are not
        exceeded, and neither is a time that must be kept.

        Raises:
            NoSpeedError: Nothing forecasts it, or even one sequence at a time is slower than what must be kept.
        """
        kept = objectives or Objectives()

        def at(most: int) -> Speed | None:
            return self._at(shape, gpu, layout, serving, output, share, kept, most)

        # The more sequences, the later each token: the most that keep the times are found by halving.
        low, high = 1, serving.concurrent
        best = at(low)
        if best is None:
            raise NoSpeedError(f"one request at a time is slower than what must be kept on {gpu.name}")
        found = at(high)
        if found is not None:
            return found
        while high > low * _CLOSE_ENOUGH and high - low > 1:
            middle = round(math.sqrt(low * high))
            speed = at(middle)
            if speed is None:
                high = middle
            else:
                low, best = middle, speed
        return best

    def _at(
        self,
        shape: Shape,
        gpu: Gpu,
        layout: Layout,
        serving: Serving,
        output: int,
        share: float,
        kept: Objectives,
        most: int,
    ) -> Speed | None:
        """Return the rate at which no more than so many sequences are at work; ``None`` where a time is not kept."""
        root = (math.sqrt(_PEAK**2 + 4 * most) - _PEAK) / 2
        usual = max(root**2, 1.0)
        request = PredictRequest(
            task="serve",
            gpu=gpu.id,
            gpus=layout.tensor,
            model=shape.name,
            precision=serving.precision,
            parameters=float(shape.parameters),
            active_parameters=float(shape.active_parameters),
            layers=shape.layers,
            hidden=shape.hidden,
            batch=round(usual, 3),
            input_tokens=max(serving.sequence - output, 1),
            output_tokens=output,
            tensor_parallel=layout.tensor,
            backend="vllm",
        )
        between = self._ask(request)
        first = self._ask(replace(request, metric="ttft"))
        tpot, ttft = between.value / share, first.value / share
        if (kept.tpot_ms is not None and tpot > kept.tpot_ms) or (kept.ttft_ms is not None and ttft > kept.ttft_ms):
            return None

        def rate(each: float, one: float) -> float:
            return usual * share / ((one + (output - 1) * each) * _MILLI)

        return Speed(
            low=rate(between.high, first.high),
            median=rate(between.value, first.value),
            high=rate(between.low, first.low),
            unit="requests/s",
            mode=f"forecast, {between.mode}",
            request=request,
            basis=(
                f"{tpot:.3g} ms between tokens and {ttft:.3g} ms to the first one, {usual:.3g} sequences on average",
                *between.basis,
                *between.cautions,
            ),
            ttft_ms=ttft,
            tpot_ms=tpot,
        )

    def _ask(self, request: PredictRequest) -> Forecast:
        """Return the forecast of a run.

        Raises:
            NoSpeedError: There is none.
        """
        if request not in self._known:
            try:
                self._known[request] = self._predictor.forecast(self._predictor.describe(request))
            except ProvisionError as error:
                self._known[request] = error
        found = self._known[request]
        if isinstance(found, ProvisionError):
            raise NoSpeedError(found.message)
        return found


def _speed(request: PredictRequest, forecast: Forecast, gpus: int, unit: str) -> Speed:
    # Tokens are forecast of each GPU, images of all of them.
    times = gpus if forecast.unit.endswith("/GPU") else 1
    beyond = tuple(f"beyond what it was learnt from in {name.replace('_', ' ')}" for name in forecast.extrapolates[:2])
    return Speed(
        low=forecast.low * times,
        median=forecast.value * times,
        high=forecast.high * times,
        unit=unit,
        mode=f"forecast, {forecast.mode}",
        request=request,
        basis=(*forecast.basis, *forecast.cautions, *beyond),
    )
