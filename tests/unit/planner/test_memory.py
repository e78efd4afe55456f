"""Memory: published peaks, published formulas, and that each knob turns the right way."""

from __future__ import annotations

import statistics
import tomllib
from pathlib import Path

import pytest

from provision.assets import facts_dir
from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.planner.memory import (
    GIB,
    Estimate,
    Layout,
    Serving,
    Training,
    cache_bytes_per_token,
    estimate_network,
    estimate_serving,
    estimate_training,
    lora_parameters,
    read_constants,
    states_gib,
)
from provision.planner.shape import find_shape
from provision.predict.networks import Networks
from provision.records import replace
from tools import score_memory

MATRIX = Matrix()
CONSTANTS = read_constants(MATRIX)
LLAMA = find_shape(MATRIX, "llama-3.1-8b")
RUNS = score_memory.read_runs()
LEARNING = [run for run in RUNS if run.part == "learning"]
HELD_OUT = [run for run in RUNS if run.part == "held out"]


def test_there_are_many_published_runs_of_sources_that_are_not_learnt_from():
    assert len(RUNS) >= 200
    assert len({run.source for run in HELD_OUT}) >= 5
    assert not {run.source for run in HELD_OUT} & {run.source for run in LEARNING}
    assert {run.task for run in LEARNING} == {"train", "serve", "images"}


def test_every_source_and_shape_of_the_runs_is_used():
    document = tomllib.loads((score_memory.FOLDER / "sources.toml").read_text(encoding="utf-8"))
    assert {row["id"] for row in document["source"]} == {run.source for run in RUNS}
    assert {row["id"] for row in document["model"]} <= {run.model for run in RUNS}


def test_runs_that_constants_are_learnt_from_are_met_within_six_percent_and_their_range():
    assert statistics.median(abs(score_memory.error_of(run)) for run in LEARNING) < 0.06
    assert sum(map(score_memory.is_within, LEARNING)) / len(LEARNING) >= 0.9


def test_the_page_shows_how_far_off_the_estimates_are():
    page = (Path(__file__).resolve().parents[3] / "docs" / "plan.md").read_text(encoding="utf-8")
    assert score_memory.table(RUNS) in page


def part(found: Estimate, name: str) -> float:
    return sum(each.gib for each in found.parts if each.name == name)


def test_gradients_and_activations_are_not_there_at_once():
    """Mistral 7B in 16 bits takes 67.5 GiB with 4 sequences of 4096 tokens and with 8 (fms-acceleration)."""
    mistral = find_shape(MATRIX, "mistral-7b")
    settings = {"states": "bf16", "sharding": "none", "checkpointing": "full", "sequence": 4096}
    four, eight = (
        estimate_training(mistral, Layout(), Training(micro_batch=size, **settings), CONSTANTS) for size in (4, 8)
    )
    assert four.total_gib == eight.total_gib
    assert part(four, "activations") == 0
    summed = estimate_training(mistral, Layout(), Training(micro_batch=8, micro_batches=2, **settings), CONSTANTS)
    assert part(summed, "gradients") > 0
    assert part(summed, "activations") > 0


def test_logits_and_the_layer_at_work_are_not_there_at_once():
    found = estimate_training(LLAMA, Layout(gpus=64), Training(checkpointing="full", micro_batch=4), CONSTANTS)
    assert part(found, "logits") > 0
    assert part(found, "layer at work") == 0
    fused = Training(checkpointing="full", micro_batch=4, loss="fused")
    assert part(estimate_training(LLAMA, Layout(gpus=64), fused, CONSTANTS), "layer at work") > 0


def test_adapters_of_the_attention_alone_are_fewer():
    """PEFT counts 13,631,488 trained parameters for the attention of Llama 3.1 8B at rank 16."""
    assert lora_parameters(LLAMA, 16, "attention") == 13_631_488


def test_served_weights_in_4_bits_leave_both_ends_in_16():
    """Qwen3 8B has 8.19 billion parameters, 1.24 of them embedding and output, and scales for 128 weights each."""
    shape = find_shape(MATRIX, "qwen3-8b")
    found = estimate_serving(shape, Layout(), Serving(precision="int4"), CONSTANTS)
    layers = shape.parameters - shape.end_parameters
    assert part(found, "weights") * GIB == pytest.approx(2 * shape.end_parameters + layers * (0.5 + 2.5 / 128))


def test_a_long_prompt_comes_in_pieces():
    needs = [
        part(estimate_serving(LLAMA, Layout(), Serving(sequence=length), CONSTANTS), "activations")
        for length in (4096, 8192, 65536)
    ]
    assert needs[0] < needs[1] == needs[2]


def test_a_diffusion_model_brings_its_text_encoders():
    """SDXL takes 9.0 GiB in 16 bits and 16.8 in 32 (sdxl-fast)."""
    network = Networks(facts_dir()).find("sdxl")
    assert network is not None
    settings = {"batch": 1, "is_training": False, "gpus": 1, "optimizer": "adam", "constants": CONSTANTS}
    half, whole = (estimate_network(network, precision=precision, **settings) for precision in ("bf16", "fp32"))
    assert part(half, "beside") * GIB == 2 * network.beside > 0
    assert whole.total_gib - CONSTANTS.cuda_context_gib == pytest.approx(
        2 * (half.total_gib - CONSTANTS.cuda_context_gib)
    )


@pytest.mark.parametrize(
    ("states", "sharding", "bytes_each"),
    [
        ("mixed", "none", lambda copies: 16),
        ("mixed", "zero1", lambda copies: 4 + 12 / copies),
        ("mixed", "zero2", lambda copies: 2 + 14 / copies),
        ("mixed", "zero3", lambda copies: 16 / copies),
        ("fp32", "none", lambda copies: 16),
        ("fp32", "zero3", lambda copies: 16 / copies),
        ("megatron", "none", lambda copies: 18),
        ("megatron", "zero1", lambda copies: 6 + 12 / copies),
        ("megatron", "zero3", lambda copies: 18 / copies),
    ],
)
@pytest.mark.parametrize("copies", [1, 8, 64])
def test_states_are_those_of_the_papers(states, sharding, bytes_each, copies):
    """ZeRO paper, figure 1; Megatron-LM's theoretical_memory_usage.py; DeepSpeed's estimator of stage 3."""
    parts = states_gib(1e9, states=states, optimizer="adam", sharding=sharding, shards=copies)
    assert sum(parts) * GIB == pytest.approx(1e9 * bytes_each(copies))


def total(**changes: object) -> float:
    layout = Layout(gpus=8, **{key: changes.pop(key) for key in ("tensor", "pipeline") if key in changes})
    return estimate_training(LLAMA, layout, replace(Training(sequence=4096), **changes), CONSTANTS).total_gib


def test_each_stage_of_zero_needs_less_than_the_one_before():
    needs = [total(sharding=stage) for stage in ("none", "zero1", "zero2")]
    assert needs == sorted(needs, reverse=True)
    assert total(sharding="zero3") < needs[0]


def test_more_checkpointing_needs_less():
    needs = [total(checkpointing=kind) for kind in ("none", "selective", "full")]
    assert needs == sorted(needs, reverse=True)
    assert len(set(needs)) == 3


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"micro_batch": 1}, {"micro_batch": 2}),
        ({"sequence": 2048}, {"sequence": 4096}),
        ({"is_compiled": True}, {"is_compiled": False}),
        ({"optimizer": "adam8bit"}, {"optimizer": "adam"}),
        ({"optimizer": "sgd"}, {"optimizer": "lion"}),
        ({"method": "lora"}, {"method": "full", "sharding": "none"}),
        ({"method": "qlora", "sharding": "none"}, {"method": "lora", "sharding": "none"}),
        ({"has_flash": True, "checkpointing": "none"}, {"has_flash": False, "checkpointing": "none"}),
        ({"tensor": 4}, {"tensor": 1}),
    ],
    ids=str,
)
def test_every_knob_turns_the_right_way(less, more):
    assert total(**less) < total(**more)


def test_scores_of_attention_grow_with_the_square_of_the_sequence():
    """Korthikanti et al., table 2: 5 a s / h of s b h."""
    kept = {"checkpointing": "none", "micro_batch": 1, "updates_at_once": True}
    extra = [
        total(**kept, has_flash=False, sequence=length) - total(**kept, has_flash=True, sequence=length)
        for length in (1024, 2048)
    ]
    assert extra[0] * GIB == pytest.approx(5 * LLAMA.heads * 1024**2 * LLAMA.layers)
    assert extra[1] == pytest.approx(4 * extra[0])


def test_activations_of_a_gpt_layer_are_korthikantis_without_dropout():
    """34 s b h with dropout masks of 2 s b h in all (table 2), the scores left to a fused attention."""
    gpt = replace(LLAMA, is_gated=False, ffn=4 * 4096, kv_heads=32, layers=1, vocab=1)
    training = Training(checkpointing="none", sequence=1024, micro_batch=1, updates_at_once=True)
    found = estimate_training(gpt, Layout(), training, CONSTANTS)
    activations = next(part.gib for part in found.parts if part.name == "activations")
    assert activations * GIB == pytest.approx(32 * 1024 * 4096)


def test_the_parts_make_the_sum():
    found = estimate_training(LLAMA, Layout(gpus=8), Training(), CONSTANTS)
    assert found.total_gib == pytest.approx(sum(part.gib for part in found.parts))
    assert found.low_gib < found.total_gib < found.high_gib
    assert all(part.formula for part in found.parts)


def test_the_cache_of_llama_takes_128_kib_a_token():
    """2 × 32 layers × 8 heads × 128 × 2 bytes."""
    assert cache_bytes_per_token(LLAMA, "bf16") == 128 * 1024
    assert cache_bytes_per_token(LLAMA, "fp8") == 64 * 1024


def test_serving_counts_weights_once_and_the_cache_by_sequence():
    one = estimate_serving(LLAMA, Layout(), Serving(concurrent=1, sequence=8192), CONSTANTS)
    two = estimate_serving(LLAMA, Layout(), Serving(concurrent=2, sequence=8192), CONSTANTS)
    assert two.total_gib - one.total_gib == pytest.approx(8192 * 128 * 1024 / GIB)
    weights = next(part.gib for part in one.parts if part.name == "weights")
    assert weights * GIB == pytest.approx(2 * LLAMA.parameters)


def test_tensor_parallelism_beyond_the_heads_of_the_cache_repeats_it():
    def cache(tensor: int) -> float:
        found = estimate_serving(LLAMA, Layout(gpus=tensor, tensor=tensor), Serving(sequence=8192), CONSTANTS)
        return next(part.gib for part in found.parts if part.name == "cache")

    assert cache(8) == pytest.approx(cache(1) / 8)
    assert cache(16) == cache(8)


def test_adapters_of_rank_16_on_llama():
    """PEFT counts 41,943,040 trained parameters for all linear layers of Llama 3.1 8B at rank 16."""
    assert lora_parameters(LLAMA, 16) == 41_943_040


@pytest.mark.parametrize(
    "parts", [{"gpus": 8, "tensor": 3}, {"gpus": 0}, {"gpus": 4, "pipeline": 8}, {"gpus": 8, "context": -1}]
)
def test_a_layout_that_does_not_divide_is_refused(parts):
    with pytest.raises(UsageError):
        Layout(**parts)


@pytest.mark.parametrize("layout", [Layout(gpus=64, tensor=64), Layout(gpus=64, pipeline=64)])
def test_a_layout_that_does_not_suit_the_model_is_refused(layout):
    with pytest.raises(UsageError):
        estimate_training(LLAMA, layout, Training(), CONSTANTS)
