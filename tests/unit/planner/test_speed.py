"""Speeds of placed jobs: they are those of predict, whole, and objectives are kept."""

from __future__ import annotations

from functools import cache
from itertools import cycle

import pytest

from provision.matrix.load import Matrix
from provision.planner.catalogue import list_offers, read_rates
from provision.planner.cost import Extras
from provision.planner.job import Job, check_job
from provision.planner.memory import Layout, Serving, Training
from provision.planner.plan import Terms, make_plan
from provision.planner.shape import find_shape
from provision.planner.speed import NoSpeedError, Objectives, Speeds
from provision.predict import estimate
from provision.predict.networks import Networks
from provision.records import replace

MATRIX = Matrix()
SPEEDS = Speeds(MATRIX)
LLAMA = find_shape(MATRIX, "llama-3.1-8b")
GPUS = {gpu.id: gpu for gpu in MATRIX.gpus}
H100 = GPUS["h100-sxm5-80gb"]
TRAINED = ("llama-3.1-8b", "qwen2.5-1.5b", "mistral-7b", "llama-3.1-70b", "mixtral-8x7b")
PICTURES = ("resnet50", "vit_base_patch16_224", "efficientnet_b0", "convnext_tiny", "yolov8m", "sd-1.5")


def train(gpu=H100, gpus=8, nodes=1, link="nvswitch", **changes):
    training = replace(Training(sequence=4096), **changes)
    return SPEEDS.train(LLAMA, gpu, Layout(gpus=gpus), training, nodes=nodes, link=link)


def _rows(job):
    check_job(job)
    terms = Terms(purchases=("on-demand",), rates=read_rates(MATRIX, {}), extras=Extras())
    return make_plan(job, list_offers(MATRIX, regions=["us-east-1", "us-central1"]), terms, MATRIX, speeds=SPEEDS).rows


def _jobs():
    for name, sequence in zip(TRAINED, cycle((1024, 4096)), strict=False):
        yield Job(task="pretrain", shape=find_shape(MATRIX, name), name=name, tokens=1e9, sequence=sequence)
    for name in TRAINED[:3]:
        yield Job(task="finetune", method="lora", shape=find_shape(MATRIX, name), name=name, tokens=1e8)
        yield Job(task="inference", shape=find_shape(MATRIX, name), name=name, hours=1.0, concurrent=16)
    for name in PICTURES:
        yield Job(task="pretrain", network=Networks(MATRIX.data_dir).find(name), name=name, images=1e8)


def test_plan_and_predict_give_one_number_for_one_job():
    seen, forecast_of = 0, cache(lambda request: estimate(request, MATRIX))
    for job in _jobs():
        for row in _rows(job):
            if row.speed is None:
                continue
            forecast = forecast_of(row.speed.request)
            if job.task == "inference":
                assert row.speed.tpot_ms == pytest.approx(forecast.value / row.fit.share)
            else:
                times = row.speed.request.gpus if forecast.unit.endswith("/GPU") else 1
                share = row.fit.share
                assert row.speed.median == pytest.approx(forecast.value * times * share), row.speed.request
                assert row.speed.low == pytest.approx(forecast.low * times * share)
            seen += 1
    assert seen >= 200


def test_images_are_planned_in_hours_of_epochs():
    """ResNet-50 on eight A100: NVIDIA publishes 2 to 3 thousand images a second of one, 90 epochs in a few hours."""
    network = Networks(MATRIX.data_dir).find("resnet50")
    job = Job(task="pretrain", network=network, name="resnet50", images=90 * 1_281_167)
    row = next(row for row in _rows(job) if row.offer.gpu.id.startswith("a100-sxm") and row.gpus == 8)
    assert row.speed.unit == "images/s"
    assert 1 < row.hours[1] < 12


def test_llama_on_eight_h100_is_near_what_torchtitan_measured():
    """5762 to 6667 tokens a second and GPU at a sequence of 8192."""
    found = train(sequence=8192)
    assert found.low / 8 < 6667
    assert found.high / 8 > 5762
    assert found.low < found.median < found.high


def test_gpus_on_pci_express_are_slower():
    assert train(link="pcie").median < train().median
    assert train(link="pcie").high / train(link="pcie").low > train().high / train().low


def test_adapters_train_faster_than_all_weights():
    assert train(method="lora").median > train().median


@pytest.mark.parametrize(("gpu", "precision"), [("a100-sxm4-80gb", "fp8"), ("a10g", "tf32")])
def test_a_peak_the_facts_lack_is_not_guessed(gpu, precision):
    with pytest.raises(NoSpeedError):
        train(gpu=GPUS[gpu], precision=precision)


def serve(concurrent=16, output=256, tensor=1, share=1.0, objectives=None, **changes):
    serving = replace(Serving(concurrent=concurrent, sequence=2048), **changes)
    layout = Layout(gpus=tensor, tensor=tensor)
    return SPEEDS.serve(LLAMA, H100, layout, serving, output=output, share=share, objectives=objectives)


def test_more_sequences_at_once_serve_more_requests():
    assert serve(concurrent=32).median > serve(concurrent=4).median


def test_longer_answers_take_longer():
    assert serve(output=1024).median < serve(output=64).median


def test_a_time_that_must_be_kept_is_kept_and_costs_requests():
    free = serve(concurrent=128)
    kept = serve(concurrent=128, objectives=Objectives(tpot_ms=free.tpot_ms * 0.8))
    assert kept.tpot_ms <= free.tpot_ms * 0.8
    assert kept.median < free.median


def test_a_time_that_nothing_keeps_is_told():
    with pytest.raises(NoSpeedError, match="slower than what must be kept"):
        serve(objectives=Objectives(tpot_ms=0.5))
