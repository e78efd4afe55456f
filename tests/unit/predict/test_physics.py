"""Hardware, shapes and the physics that everything learnt stands on."""

from __future__ import annotations

from math import exp, isfinite

import pytest

from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.predict.collective import bus_factor
from provision.predict.hardware import Hardware
from provision.predict.predictor import Predictor
from provision.predict.request import PredictRequest
from provision.predict.shapes import Shapes
from provision.records import replace


@pytest.fixture(scope="module")
def predictor():
    return Predictor(Matrix())


TRAIN = PredictRequest(task="train", model="llama-3.1-8b", gpu="h100", gpus=8, sequence=4096, micro_batch=2)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("h100", "h100-sxm5-80gb"),
        ("h100_sxm", "h100-sxm5-80gb"),
        ("DGX-GB300", "gb300"),
        ("a100_40gb", "a100-sxm4-40gb"),
        ("A100-PCIe-40GB", "a100-pcie-40gb"),
        ("RTX3090", "rtx-3090"),
        ("3090 24GB", "rtx-3090"),
        ("Tesla T4", "t4"),
        ("NVIDIA L4-12Q", "l4"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("RTX-PRO-6000-MaxQ", "rtx-pro-6000-max-q"),
        ("M1 Max 32‑Core GPU 64GB", "apple-m1-max"),
    ],
)
def test_names_of_tables_mean_gpus(written, meant):
    assert Hardware(Matrix()).find(written).id == meant


@pytest.mark.parametrize("name", ["M9 Max 32-Core GPU", "b60", "", "GTX 9999", "quantum", "m1", "h1", "40"])
def test_names_of_nothing_known_are_refused(name):
    with pytest.raises(UnknownError):
        Hardware(Matrix()).find(name)


def test_every_override_names_a_gpu_of_the_facts():
    hardware = Hardware(Matrix())
    ids = {gpu.id for gpu in Matrix().gpus}
    assert set(hardware._facts["gpus"]) <= ids
    assert set(hardware._facts["aliases"].values()) <= ids
    assert {row["source"] for row in hardware._facts["gpus"].values()} <= set(hardware._facts["sources"])


def test_no_override_hides_a_fact():
    """One definition of a ceiling: gpus.toml where it has one, hardware.json where it has none."""
    gpus = {gpu.id: gpu for gpu in Matrix().gpus}
    for name, own in Hardware(Matrix())._facts["gpus"].items():
        if "tensor_tflops" in own or "tensor_over_fp32" in own:
            assert gpus[name].tflops_fp16_tensor is None
        if "memory_gb_s" in own:
            assert gpus[name].memory_bandwidth_gb_s is None


@pytest.mark.parametrize(
    ("name", "tflops"),
    # Without tensor cores twice FP32; the Titan at full rate; the A100X as the A100.
    [("gtx-1650", 6.0), ("t600", 3.4), ("titan-rtx", 130.4), ("a100x", 318.4), ("rtx-2080-ti", 53.6)],
)
def test_peaks_that_follow_from_the_architecture_follow_the_chip(name, tflops):
    assert Hardware(Matrix()).find(name).tensor_flop_s == pytest.approx(tflops * 1e12)


def test_a_board_of_four_chips_counts_as_one_of_them():
    hardware = Hardware(Matrix())
    assert hardware.find("A16").memory_bytes_s == pytest.approx(200e9)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("llama-3.1-8b", 8.03e9, 8.03e9),
        ("LLAMA3_70B", 70.55e9, 70.55e9),
        ("Qwen3_30B_a3B", 30.5e9, 3.3e9),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03e9, 8.03e9),
        ("nvidia/DeepSeek-R1-NVFP4", 671e9, 37e9),
        ("somebody/New-42B-A4B", 42e9, 4e9),
        ("mystery-350m", 350e6, 350e6),
        ("pile-8x7b", 56e9, 56e9),
    ],
)
def test_names_tell_sizes(name, total, active):
    request = replace(TRAIN, model=name)
    shape = Shapes(Matrix().data_dir).of(request)
    assert shape.parameters == pytest.approx(total, rel=0.01)
    assert shape.active_parameters == pytest.approx(active, rel=0.06)


def test_a_name_without_a_size_is_refused_with_the_way_out():
    with pytest.raises(UnknownError, match="size of the model `gpt`") as caught:
        Shapes(Matrix().data_dir).of(replace(TRAIN, model="gpt"))
    assert any("--params" in hint for hint in caught.value.hints)


def test_operations_of_a_token_follow_the_published_count():
    shape = Shapes(Matrix().data_dir).of(replace(TRAIN, model="mpt-13b", parameters=12853954560))
    # 6 N + 12 L d s, and 164.8 of its 312 TFLOPS is what the publisher calls 52.8 % MFU at 1 930 tokens/s.
    assert shape.training_flop(2048) == pytest.approx(6 * 12853954560 + 12 * 40 * 5120 * 2048)


@pytest.mark.parametrize("name", ["gpus", "sequence", "micro_batch", "parameters", "tensor_parallel"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_impossible_sizes_are_refused(name, value):
    with pytest.raises(UsageError, match="above zero"):
        replace(TRAIN, **{name: value})


def test_an_unknown_task_is_refused():
    with pytest.raises(UsageError, match="no task"):
        PredictRequest(task="dance", gpu="h100")


def test_bus_factors_are_those_of_nccl_tests():
    assert bus_factor("all_reduce", 8) == pytest.approx(1.75)
    assert bus_factor("all_gather", 8) == pytest.approx(0.875)
    assert bus_factor("broadcast", 8) == 1.0


def test_a_collective_of_one_gpu_is_refused(predictor):
    with pytest.raises(UsageError, match="two GPUs"):
        predictor.describe(PredictRequest(task="collective", gpu="h100", gpus=1, message_bytes=1e6))


def test_more_work_takes_longer(predictor):
    def value(**changes):
        return predictor.forecast(predictor.describe(replace(TRAIN, **changes))).value

    assert value(model="llama-3.1-70b", recompute="full") < value() / 4
    assert value(gpu="a100") < value() / 1.5
    assert value(recompute="full") < value()
    assert value(precision="fp8") > value()


def test_every_feature_is_finite_for_every_known_gpu(predictor):
    requests = [
        TRAIN,
        replace(TRAIN, stack="megatron", tensor_parallel=2),
        PredictRequest(task="collective", gpu="h100", gpus=4, message_bytes=1),
        PredictRequest(task="serve", gpu="h100", model="llama-3.1-8b", input_tokens=1, output_tokens=1, batch=1e5),
        PredictRequest(task="decode", gpu="h100", model="llama-3.1-8b"),
        PredictRequest(task="vision-inference", gpu="h100", model="x", gmacs=1e-9, macts_m=1e-9, parameters=1),
    ]
    seen = 0
    for gpu in Matrix().gpus:
        for request in requests:
            try:
                forecast = predictor.forecast(predictor.describe(replace(request, gpu=gpu.id)))
            except UnknownError:
                continue
            seen += 1
            assert 0 < forecast.low <= forecast.value <= forecast.high
            assert isfinite(forecast.high)
    assert seen > 300


def test_physics_is_what_the_ceilings_give(predictor):
    signal = predictor.signal(replace(TRAIN, parameters=8e9, layers=32, hidden=4096, sequence=2048))
    assert exp(signal.physics) == pytest.approx(989e12 / (6 * 8e9 + 12 * 32 * 4096 * 2048))


@pytest.mark.parametrize(
    ("request_of", "measured"),
    [
        # torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3: FSDP with torch.compile.
        ({"is_compiled": True, "recompute": "selective", "sequence": 8192}, 6667),
        ({"is_compiled": True, "recompute": "selective", "sequence": 8192, "gpus": 128, "global_batch": 256}, 6514),
        # aiconfigurator-core, NCCL tables: bus bandwidth in GB/s of 512 MiB among eight GPUs, and of 2 KiB.
        ({"task": "collective", "operation": "all_reduce", "message_bytes": 2.0**29}, 445),
        ({"task": "collective", "operation": "all_gather", "message_bytes": 2.0**29}, 335.6),
        ({"task": "collective", "operation": "all_reduce", "message_bytes": 2048.0}, 0.2275),
        ({"task": "collective", "operation": "all_reduce", "message_bytes": 2.0**29, "gpu": "b200"}, 702),
    ],
)
def test_published_runs_are_forecast(predictor, request_of, measured):
    request = replace(TRAIN, **({"model": None} if "task" in request_of else {}), **request_of)
    assert predictor.forecast(predictor.describe(request)).value == pytest.approx(measured, rel=0.08)


def test_links_are_switched_where_every_gpu_reaches_every_other():
    hardware = Hardware(Matrix())
    assert hardware.find("h100").is_switched
    assert not hardware.find("h100-nvl").is_switched
    assert not hardware.find("l40s").is_switched


def test_a_known_network_costs_more_at_a_larger_image(predictor):
    at = PredictRequest(task="vision-inference", gpu="rtx-3090", model="resnet50", image_size=224)
    small, large = predictor.networks.of(at), predictor.networks.of(replace(at, image_size=448))
    assert large.gmacs == pytest.approx(4 * small.gmacs)
    assert small.gmacs == pytest.approx(4.1, rel=0.02)


def test_rows_of_a_table_lend_their_operations_to_rows_without():
    predictor = Predictor(Matrix())
    told = PredictRequest(
        task="vision-inference", gpu="rtx-3090", model="brand_new", gmacs=2.0, macts_m=9.0, parameters=7e6
    )
    silent = replace(told, task="vision-training", gmacs=None, macts_m=None)
    assert not predictor.networks.of(silent).is_exact
    predictor.networks.learn(told)
    assert predictor.networks.of(silent).gmacs == 2.0
