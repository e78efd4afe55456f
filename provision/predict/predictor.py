"""Puts hardware, shapes and what was learnt together: a request in, a forecast out."""

from __future__ import annotations

import json
from functools import cached_property
from math import exp, log
from pathlib import Path

from provision.errors import DataError
from provision.matrix.load import Matrix
from provision.predict import collective, serving, training, vision
from provision.predict.bounds import hold, is_beyond, widen
from provision.predict.hardware import Hardware
from provision.predict.networks import Networks
from provision.predict.regression import Estimate, Regression, read_regression
from provision.predict.request import Forecast, PredictRequest
from provision.predict.shapes import Shapes
from provision.predict.signal import Signal
from provision.records import record, replace

_UNLEARNT = 0.69
"""Half width, in logarithms, of an interval that nothing measured stands behind: from half to twice the value."""
_WORK = {"serve": "decode", "decode": "decode", "train": "train"}
"""Task → the work in planning.toml whose shares of the ceilings were measured."""
_SHARES = (0.5, 0.5**0.5)
"""Shares of a ceiling that slow and good runs reach, where none were measured: the half, and the middle up to it."""


@record
class Described:
    """A request, its physics, and the cold estimate with the name of the model behind it, where there is one.

    ``is_held`` tells that what was learnt would beat the ceilings of the hardware, which stand in its place.
    """

    request: PredictRequest
    signal: Signal
    estimate: Estimate
    model: str | None
    is_held: bool = False


class Predictor:
    """Answers requests.

    Args:
        matrix: The facts.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.hardware = Hardware(matrix)
        self.shapes = Shapes(matrix.data_dir)
        self.networks = Networks(matrix.data_dir)
        self._folder: Path = matrix.data_dir / "predict"
        self._models: dict[str, Regression] = {}
        self._matrix = matrix
        self._shares: dict[str, tuple[float, float]] = {}

    @cached_property
    def engine(self) -> serving.Engine:
        """What serving engines make of the ceilings; a fit may set another.

        Raises:
            DataError: The file is missing or is not JSON.
        """
        path = self._folder / "serving.json"
        try:
            return serving.Engine.read(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{path} cannot be read", because=(str(error),)) from error

    def signal(self, request: PredictRequest) -> Signal:
        """Return the physics of one run.

        Raises:
            IncompatibleError: The GPU does not compute in the precision.
            UnknownError: The GPU, the model's size or the network's operations are not known.
            UsageError: The request contradicts itself.
        """
        accelerator = self.hardware.find(request.gpu)
        if request.task == "collective":
            return collective.describe(request, accelerator)
        if request.task.startswith("vision"):
            return vision.describe(request, accelerator, self.networks.of(request))
        shape = self.shapes.of(request)
        if request.task == "serve":
            describe = serving.describe_first if request.metric == "ttft" else serving.describe
            return describe(request, accelerator, shape, self.engine)
        if request.task == "decode":
            return serving.describe_decode(request, accelerator, shape, self.engine.stream)
        training.check_precision(request.precision, accelerator)
        return training.describe(request, accelerator, shape)

    def model(self, name: str) -> Regression:
        """Return one learnt model, read once.

        Args:
            name: Of a file under ``compat/predict/``, without its ending.
        """
        if name not in self._models:
            self._models[name] = read_regression(self._folder / f"{name}.json")
        return self._models[name]

    def describe(self, request: PredictRequest) -> Described:
        """Return a request with its cold estimate.

        Raises:
            UnknownError: As :meth:`signal`.
            UsageError: As :meth:`signal`.
        """
        signal = self.signal(request)
        name = self._name_of_model(request)
        if name is None:
            low, high = self._unlearnt(request)
            estimate = Estimate(middle=signal.physics, low=signal.physics + low, high=signal.physics + high, known=())
        else:
            signal, estimate = self._learnt(request, signal, name)
        if signal.doubt:
            estimate = widen(estimate, 0.0, signal.doubt)
        estimate, is_held = hold(signal, estimate, self._reached(request.task))
        return Described(request=request, signal=signal, estimate=estimate, model=name, is_held=is_held)

    def _unlearnt(self, request: PredictRequest) -> tuple[float, float]:
        """Return the 80 % interval of physics alone, in logarithms."""
        if request.task == "decode" and request.input_tokens:
            return self.engine.stream["low"], self.engine.stream["high"]
        return -_UNLEARNT, _UNLEARNT

    def _learnt(self, request: PredictRequest, signal: Signal, name: str) -> tuple[Signal, Estimate]:
        """Return what was learnt of a run, of its neighbour in 8 bits where no run in 16 was learnt from.

        Products of 16 bits take twice the time of those of 8 bits and everything else as long, so that a run is from
        half to all as fast.
        """
        regression = self.model(name)
        estimate = regression.estimate(signal.physics, signal.features, signal.keys)
        _, good = self._reached(request.task)
        if (
            request.task == "serve"
            and is_beyond(signal, estimate.middle + log(good))
            and not is_beyond(signal, signal.physics)
        ):
            # Its constants were fitted by themselves, and hold further than what was learnt on top of them.
            low, high = regression.interval(())
            said = "what was learnt on top of physics would beat what good runs reach here: physics alone stands"
            signal = replace(signal, cautions=(*signal.cautions, said))
            return signal, replace(
                estimate, middle=signal.physics, low=signal.physics + low, high=signal.physics + high, known=()
            )
        if request.task != "train" or request.precision not in training.SIXTEEN_BIT:
            return signal, estimate
        if "sixteen_bit" not in estimate.outside:
            return signal, estimate
        accelerator, shape = self.hardware.find(request.gpu), self.shapes.of(request)
        near = training.describe(replace(request, precision="fp8", stack="megatron"), accelerator, shape)
        estimate = widen(regression.estimate(near.physics, near.features, near.keys), -log(2) / 2, log(2) / 2)
        said = f"no run in {request.precision} was learnt from: this is half to all of the speed in fp8"
        return replace(signal, cautions=(*signal.cautions, said)), estimate

    def _reached(self, task: str) -> tuple[float, float]:
        """Return the shares of the ceilings that slow and good runs were measured to reach."""
        if task not in self._shares:
            rows = self._matrix.rows("planning.toml", "utilisation") if task in _WORK else ()
            row = next((row for row in rows if row.work == _WORK[task] and row.gpu is None), None)
            self._shares[task] = (row.low, row.high) if row else _SHARES
        return self._shares[task]

    def forecast(self, described: Described) -> Forecast:
        """Return a forecast from specifications, or with measurements of the same model elsewhere behind it."""
        estimate, signal, name = described.estimate, described.signal, described.model
        basis = [*signal.notes]
        if described.is_held:
            basis.append("the ceilings of the hardware, and the shares of them that measured runs reach")
        elif name is None:
            basis.append("the ceilings of the hardware alone, and nothing measured; give `--measured FILE`")
        else:
            basis.append(self._experience(name, set(estimate.known)))
        cautions = signal.cautions
        if described.is_held and name is not None:
            cautions += ("what was learnt would beat the ceilings of the hardware here, and was not used",)
        is_transfer = "model" in estimate.known and described.request.task != "train"
        if is_transfer:
            basis.append(f"`{described.request.model}` itself was measured, on these or other GPUs")
        return Forecast(
            value=exp(estimate.middle),
            low=exp(estimate.low),
            high=exp(estimate.high),
            unit=signal.unit,
            mode="transfer" if is_transfer else "cold",
            basis=tuple(basis),
            extrapolates=estimate.outside,
            cautions=cautions,
        )

    def _experience(self, name: str, known: set[str]) -> str:
        """Return what a model was learnt from, and how far it was off where as much was known as here."""
        document = self.model(name).document
        rows = [row for row in document["cross_validation"] if set(row["known"]) <= known]
        most = max((len(row["known"]) for row in rows), default=0)
        rows = [row for row in rows if len(row["known"]) == most] or document["cross_validation"]
        row = (
            min(rows, key=lambda row: row["mdape_percent"]) if most else max(rows, key=lambda row: row["mdape_percent"])
        )
        left = {"gpu": "GPU"}.get(row["held_out"], row["held_out"])
        held_out = "single rows were" if left == "row" else f"a whole {left} was"
        return f"{document['summary']}; where {held_out} left out, half the misses were below {row['mdape_percent']} %"

    def _name_of_model(self, request: PredictRequest) -> str | None:
        if request.task == "collective":
            return "collective"
        if request.task.startswith("vision"):
            return "vision"
        if request.task == "serve":
            return f"serving-{request.metric}"
        if request.task == "train":
            return f"training-{training.choose_stack(request, self.hardware.find(request.gpu))}"
        return None
