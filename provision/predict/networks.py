"""Operations, activations and parameters of image networks, by name."""

from __future__ import annotations

import json
from functools import cached_property
from math import exp, log
from pathlib import Path
from typing import Any

from provision.errors import DataError, UnknownError
from provision.predict.request import PredictRequest
from provision.records import record, replace

_EDGE = 224


@record
class Network:
    """What one image costs: 10⁹ multiply-adds, 10⁶ activations, parameters as a count, pixels of its edge.

    ``is_exact`` is False where operations were guessed from the number of parameters. ``beside`` counts parameters that
    are loaded with a network and are no part of it, as text encoders are; ``widest_m`` are the 10⁶ activations of an
    image where an inference has most of them at once, where that is not all that the network makes.
    """

    gmacs: float
    macts_m: float
    parameters: float
    image_size: int
    is_exact: bool = True
    beside: float = 0.0
    widest_m: float | None = None


class Networks:
    """Looks networks up by the names that timm gives them.

    Args:
        data_dir: A folder laid out like ``compat/``.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "predict" / "networks.json"
        self._seen: dict[str, dict[int, Network]] = {}

    @cached_property
    def _document(self) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self._path} cannot be read", because=(str(error),)) from error
        return document

    @cached_property
    def _others(self) -> dict[str, Network]:
        """Networks that no table of measurements has, by all of their names; activations may be guessed."""
        path = self._path.with_name("models.json")
        try:
            rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["networks"]
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{path} cannot be read", because=(str(error),)) from error
        found: dict[str, Network] = {}
        for row in rows:
            area = (row["image_size"] / _EDGE) ** 2
            guess = self._document["guess"]
            millions = (log(row["gmacs"] / area) - guess["gmacs"][0]) / guess["gmacs"][1]
            macts = row.get("macts_m") or exp(guess["macts_m"][0] + guess["macts_m"][1] * millions) * area
            network = Network(
                gmacs=row["gmacs"],
                macts_m=macts,
                parameters=row["parameters"],
                image_size=row["image_size"],
                beside=row.get("beside", 0.0),
                widest_m=row.get("widest_m"),
            )
            found |= dict.fromkeys((row["id"], *row.get("aliases", ())), network)
        return found

    def learn(self, request: PredictRequest) -> None:
        """Remember a network whose operations a table's row tells, for rows of the same table that do not."""
        if request.model and request.gmacs and request.macts_m and request.parameters:
            size = request.image_size or _EDGE
            self._seen.setdefault(request.model.lower(), {})[size] = Network(
                gmacs=request.gmacs, macts_m=request.macts_m, parameters=request.parameters, image_size=size
            )

    def of(self, request: PredictRequest) -> Network:
        """Return the operations of a request: its own first, then its network's by name, then a guess.

        Raises:
            UnknownError: Neither operations, nor a known name, nor a number of parameters.
        """
        found = self._known(request)
        # What is given of a network counts, whatever the rest is known by.
        return replace(
            found,
            gmacs=request.gmacs or found.gmacs,
            macts_m=request.macts_m or found.macts_m,
        )

    def find(self, name: str, image_size: int | None = None) -> Network | None:
        """Return the operations of a network by its name, or ``None`` where no file has it."""
        bare = name.lower().rsplit("/", 1)[-1].partition(".")[0]
        return (
            self.of(PredictRequest(task="vision-inference", gpu="", model=name, image_size=image_size))
            if (self._shipped(name.lower()) or self._shipped(bare))
            else None
        )

    def _known(self, request: PredictRequest) -> Network:
        if request.gmacs and request.macts_m and request.parameters:
            return Network(
                gmacs=request.gmacs,
                macts_m=request.macts_m,
                parameters=request.parameters,
                image_size=request.image_size or _EDGE,
            )
        name = (request.model or "").lower()
        # Weights of one network bear its name and, behind a dot, what they were trained on: `resnet50.a1_in1k`.
        bare = name.rsplit("/", 1)[-1].partition(".")[0]
        known = self._seen.get(name) or self._seen.get(bare) or self._shipped(name) or self._shipped(bare)
        if known:
            size = request.image_size or min(known, key=lambda edge: abs(edge - _EDGE))
            near = known[min(known, key=lambda edge: abs(log(edge / size)))]
            # Convolutions and attention over patches cost as many operations as there are pixels.
            area = (size / near.image_size) ** 2
            return replace(
                near,
                gmacs=near.gmacs * area,
                macts_m=near.macts_m * area,
                image_size=size,
                widest_m=near.widest_m and near.widest_m * area,
            )
        if request.gmacs:
            return self._from_operations(request)
        if request.parameters is None:
            raise UnknownError(
                f"the network `{request.model or ''}` is not known",
                hints=("give `--gmacs`, `--macts` and `--params`, as `timm` prints them",),
            )
        guess = self._document["guess"]
        size = request.image_size or _EDGE
        millions = log(request.parameters / 1e6)
        area = (size / _EDGE) ** 2
        return Network(
            gmacs=exp(guess["gmacs"][0] + guess["gmacs"][1] * millions) * area,
            macts_m=exp(guess["macts_m"][0] + guess["macts_m"][1] * millions) * area,
            parameters=request.parameters,
            image_size=size,
            is_exact=False,
        )

    def _from_operations(self, request: PredictRequest) -> Network:
        """Return a network of known operations whose activations or parameters are guessed from them."""
        guess = self._document["guess"]
        size = request.image_size or _EDGE
        area = (size / _EDGE) ** 2
        gmacs = request.gmacs or 1.0
        millions = (log(gmacs / area) - guess["gmacs"][0]) / guess["gmacs"][1]
        if request.parameters:
            millions = log(request.parameters / 1e6)
        return Network(
            gmacs=gmacs,
            macts_m=request.macts_m or exp(guess["macts_m"][0] + guess["macts_m"][1] * millions) * area,
            parameters=request.parameters or 1e6 * exp(millions),
            image_size=size,
            is_exact=False,
        )

    def _shipped(self, name: str) -> dict[int, Network]:
        row = self._document["networks"].get(name)
        if row is None:
            other = self._others.get(name)
            return {} if other is None else {other.image_size: other}
        size, parameters, gmacs, macts = row
        return {int(size): Network(gmacs=gmacs, macts_m=macts, parameters=parameters * 1e6, image_size=int(size))}
