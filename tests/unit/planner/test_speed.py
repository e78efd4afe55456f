"""Speed by the roofline: the formula, the range, and what it refuses to guess."""

from __future__ import annotations

import pytest

from provision.matrix.load import Matrix
from provision.planner.memory import Layout, Serving, Training
from provision.planner.shape import find_shape
from provision.planner.speed import NoSpeedError, Roofline, peak_tflops, training_flops
from provision.records import replace

MATRIX = Matrix()
ROOFLINE = Roofline(MATRIX)
LLAMA = find_shape(MATRIX, "llama-3.1-8b")
GPUS = {gpu.id: gpu for gpu in MATRIX.gpus}
H100 = GPUS["h100-sxm5-80gb"]


def train(gpu=H100, gpus=8, nodes=1, link="nvswitch", **changes):
    training = replace(Training(sequence=4096), **changes)
    return ROOFLINE.train(LLAMA, gpu, Layout(gpus=gpus), training, nodes=nodes, link=link)


def test_operations_of_a_token():
    """6 N and 12 × layers × width × sequence."""
    assert training_flops(LLAMA, Training(sequence=4096)) == 6 * LLAMA.parameters + 12 * 32 * 4096 * 4096


def test_llama_on_eight_h100_is_near_what_torchtitan_measured():
    """5762 to 6667 tokens a second and GPU at a sequence of 8192."""
    found = train(sequence=8192)
    assert found.low / 8 < 6667
    assert found.high / 8 > 5762
    assert found.low < found.median < found.high


def test_twice_the_nodes_bring_less_than_twice_the_speed():
    one, two = train(gpus=8), train(gpus=16, nodes=2)
    assert one.median < two.median < 2 * one.median


def test_gpus_on_pci_express_are_slower():
    assert train(link="pcie").median < train().median
    assert train(link="pcie", gpus=1).median == train(gpus=1).median


def test_passes_of_few_tokens_wait_for_the_weights():
    """One token a pass: weights of 16 GB are read twice, and H100 brings 3.35 TB/s."""
    tiny = train(gpus=1, sequence=1, micro_batch=1)
    assert tiny.high < 3352e9 / (2 * 2 * 8.03e9)
    assert tiny.low < tiny.median < tiny.high
    assert any("wait for the weights" in text for text in tiny.basis)
    assert not any("wait for the weights" in text for text in train().basis)


@pytest.mark.parametrize("gpu", [gpu for gpu in MATRIX.gpus if gpu.tflops_fp16_tensor], ids=lambda gpu: gpu.id)
def test_plan_and_predict_have_one_peak(gpu):
    from provision.errors import UnknownError
    from provision.predict.hardware import Hardware

    hardware = Hardware(MATRIX)
    try:
        ceiling = hardware.find(gpu.id)
    except UnknownError:
        pytest.skip(f"{gpu.name} has no memory bandwidth in the facts")
    chips = hardware._facts["gpus"].get(gpu.id, {}).get("chips_per_board", 1)
    assert ceiling.tensor_flop_s * chips / 1e12 == pytest.approx(peak_tflops(gpu, "bf16"))


def test_adapters_train_faster_than_all_weights():
    assert train(method="lora").median > train().median


def test_a_gpu_of_its_own_row_is_not_the_others():
    assert train().basis != train(gpu=GPUS["h200-sxm"]).basis


@pytest.mark.parametrize(("gpu", "precision"), [("rtx-a4000", "bf16"), ("a100-sxm4-80gb", "fp8"), ("a10g", "tf32")])
def test_a_peak_the_facts_lack_is_not_guessed(gpu, precision):
    assert peak_tflops(GPUS[gpu], precision) is None
    with pytest.raises(NoSpeedError, match=f"no peak in {precision}"):
        train(gpu=GPUS[gpu], precision=precision)


def test_a_peak_its_row_lacks_follows_from_the_architecture():
    """NVIDIA's GA102 whitepaper: 71 TFLOPS of the RTX 3090 in FP16 with FP32 accumulation."""
    assert peak_tflops(GPUS["rtx-3090"], "bf16") is None
    assert "of 71" in train(gpu=GPUS["rtx-3090"]).basis[0]


def serve(concurrent=16, output=256, tensor=1, share=1.0, **changes):
    serving = replace(Serving(concurrent=concurrent, sequence=2048), **changes)
    layout = Layout(gpus=tensor, tensor=tensor)
    return ROOFLINE.serve(LLAMA, H100, layout, serving, output=output, share=share)


def test_more_sequences_at_once_serve_more_requests():
    assert serve(concurrent=32).median > serve(concurrent=4).median


def test_longer_answers_take_longer():
    assert serve(output=1024).median < serve(output=64).median


def test_half_a_gpu_serves_half():
    assert serve(share=0.5).median == pytest.approx(serve().median / 2)


def test_smaller_weights_are_read_faster():
    assert serve(precision="fp8", concurrent=1).median > serve(precision="bf16", concurrent=1).median


def test_one_sequence_is_bound_by_reading_the_weights():
    """At full bandwidth a token takes 16 GB / 3352 GB/s = 4.8 ms."""
    found = serve(concurrent=1, output=2000)
    token = 1 / found.median / 2000
    assert token == pytest.approx(2 * LLAMA.parameters / 3352e9 / 0.47, rel=0.05)


def test_with_experts_few_sequences_read_few_of_them():
    mixture = find_shape(MATRIX, "mixtral-8x7b")
    layout, serving = Layout(gpus=2, tensor=2), Serving(concurrent=1, sequence=2048)
    one = ROOFLINE.serve(mixture, H100, layout, serving, output=1024, share=1.0)
    many = ROOFLINE.serve(mixture, H100, layout, replace(serving, concurrent=64), output=1024, share=1.0)
    read_alone = 1 / one.median
    read_together = 64 / many.median
    assert read_together > 2 * read_alone
