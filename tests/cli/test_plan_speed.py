"""Which speeds a plan takes: a learnt forecast where it is the sharper one, the roofline elsewhere."""

from __future__ import annotations

import pytest

from provision.cli import plan_speed
from provision.cli.plan_speed import Forecasts
from provision.errors import UnknownError
from provision.matrix.load import Matrix
from provision.planner.memory import Layout, Training
from provision.planner.shape import find_shape
from provision.planner.speed import Roofline
from provision.predict import Forecast

MATRIX = Matrix()
LLAMA = find_shape(MATRIX, "llama-3.1-8b")
H100 = next(gpu for gpu in MATRIX.gpus if gpu.id == "h100-sxm5-80gb")
TRAINING = Training(sequence=8192, micro_batch=2)


def speed(monkeypatch, answer, *, gpus=8, nodes=1, link="nvswitch"):
    asked = []

    def estimate(request, matrix):
        asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(plan_speed, "estimate", estimate)
    speeds = Forecasts(MATRIX, is_shipped=True)
    found = speeds.train(LLAMA, H100, Layout(gpus=gpus), TRAINING, nodes=nodes, link=link)
    speeds.train(LLAMA, H100, Layout(gpus=gpus), TRAINING, nodes=nodes, link=link)
    assert len(asked) == 1
    return found, asked[0]


def forecast(low=5000.0, high=7000.0, **own):
    usual = {"value": 6000.0, "unit": "tokens/s/GPU", "mode": "cold", "basis": ("runs",)}
    return Forecast(low=low, high=high, **{**usual, **own})


def roofline(gpus=8, nodes=1, link="nvswitch"):
    return Roofline(MATRIX).train(LLAMA, H100, Layout(gpus=gpus), TRAINING, nodes=nodes, link=link)


def test_a_sharp_forecast_counts_for_all_gpus(monkeypatch):
    found, request = speed(monkeypatch, forecast(5800.0, 6200.0))
    assert (found.low, found.median, found.high) == (5800.0 * 8, 6000.0 * 8, 6200.0 * 8)
    assert found.mode == "forecast, cold"
    assert (request.task, request.gpus, request.parameters) == ("train", 8, LLAMA.parameters)
    assert (request.sequence, request.micro_batch, request.global_batch) == (8192, 2, 16)


@pytest.mark.parametrize(
    "answer",
    [forecast(100.0, 60000.0), forecast(unit="images/s"), UnknownError("no such GPU")],
    ids=["wide", "unit", "unknown"],
)
def test_a_forecast_that_knows_less_than_the_roofline_does_not_count(monkeypatch, answer):
    assert speed(monkeypatch, answer)[0] == roofline()


@pytest.mark.parametrize("where", [{"link": "pcie"}, {"nodes": 8}])
def test_machines_unlike_those_it_learnt_from_go_by_the_roofline(monkeypatch, where):
    assert speed(monkeypatch, forecast(5800.0, 6200.0), **where)[0] == roofline(**where)


def test_what_lies_beyond_the_learnt_is_said(monkeypatch):
    found, _ = speed(monkeypatch, forecast(5800.0, 6200.0, extrapolates=("tokens",)))
    assert found.basis[-1] == "beyond what it was learnt from in tokens"


def test_the_shipped_forecast_of_a_published_run_holds_its_truth():
    """torchtitan: 5762 tokens a second and GPU without compilation, 6667 with it."""
    found = Forecasts(MATRIX, is_shipped=True).train(LLAMA, H100, Layout(gpus=8), TRAINING, nodes=1, link="nvswitch")
    assert found.mode.startswith("forecast")
    assert found.low / 8 < 6667
    assert found.high / 8 > 5762
