"""Where a plan's speeds come from: learnt forecasts where there are such, the roofline elsewhere."""

from __future__ import annotations

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.planner.memory import Layout, Serving, Training
from provision.planner.shape import Shape
from provision.planner.speed import Roofline, Speed
from provision.predict import Forecast, PredictRequest, estimate

__all__ = ["Forecasts"]

_PER_GPU = "tokens/s/GPU"
_GPUS_OF_A_NODE = 8


class Forecasts:
    """Speeds of training by forecast, of serving and of what no forecast knows by the roofline.

    A forecast counts only where it knows enough: an interval wider than the roofline's own says that it does not.

    Args:
        matrix: The facts.
        is_shipped: They are those of this package, whose learnt models are read once.
    """

    def __init__(self, matrix: Matrix, *, is_shipped: bool) -> None:
        self._matrix = None if is_shipped else matrix
        self._roofline = Roofline(matrix)
        self._known: dict[PredictRequest, Forecast | ProvisionError] = {}

    def train(self, shape: Shape, gpu: Gpu, layout: Layout, training: Training, *, nodes: int, link: str) -> Speed:
        """Return the tokens a second of the whole job."""
        roofline = self._roofline.train(shape, gpu, layout, training, nodes=nodes, link=link)
        forecast = self._ask(
            PredictRequest(
                task="train",
                gpu=gpu.id,
                gpus=layout.gpus,
                precision=training.precision,
                parameters=float(shape.parameters),
                active_parameters=float(shape.active_parameters),
                layers=shape.layers,
                hidden=shape.hidden,
                sequence=training.sequence,
                micro_batch=float(training.micro_batch),
                global_batch=float(training.micro_batch * training.micro_batches * layout.data),
                recompute=training.checkpointing,
                is_compiled=training.is_compiled,
                is_finetune=training.method != "full",
                tensor_parallel=layout.tensor,
                pipeline_parallel=layout.pipeline,
            )
        )
        if isinstance(forecast, ProvisionError) or forecast.unit != _PER_GPU:
            return roofline
        # The runs the forecasts were learnt from had neither GPUs on PCI Express nor many small machines.
        if link == "pcie" or (nodes > 1 and layout.gpus // nodes < _GPUS_OF_A_NODE):
            return roofline
        if forecast.high / forecast.low > roofline.high / roofline.low:
            return roofline
        return Speed(
            low=forecast.low * layout.gpus,
            median=forecast.value * layout.gpus,
            high=forecast.high * layout.gpus,
            unit="tokens/s",
            mode=f"forecast, {forecast.mode}",
            basis=(
                *forecast.basis,
                *forecast.cautions,
                *(f"beyond what it was learnt from in {text}" for text in forecast.extrapolates),
            ),
        )

    def _ask(self, request: PredictRequest) -> Forecast | ProvisionError:
        if request not in self._known:
            try:
                self._known[request] = estimate(request, self._matrix)
            except ProvisionError as error:
                self._known[request] = error
        return self._known[request]

    def serve(self, shape: Shape, gpu: Gpu, layout: Layout, serving: Serving, *, output: int, share: float) -> Speed:
        """Return the requests a second of one replica."""
        return self._roofline.serve(shape, gpu, layout, serving, output=output, share=share)
