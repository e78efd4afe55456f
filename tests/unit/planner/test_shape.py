"""Shapes: published, read from a config, made of what is known; and the ones that cannot be."""

from __future__ import annotations

import json

import pytest

from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.planner.shape import count_parameters, find_shape, make_shape, read_config

MATRIX = Matrix()
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "hidden_act": "silu",
}


@pytest.mark.parametrize("row", MATRIX.rows("models.toml", "model"), ids=lambda row: row.id)
def test_the_shape_of_every_published_model_makes_its_parameters(row):
    shape = find_shape(MATRIX, row.id)
    # The encoders of 2018 have embeddings of positions and segments too, and biases: up to a hundredth of them.
    rel = 0.01 if "bert-paper" in row.source else 0.005
    assert count_parameters(shape) == pytest.approx(row.parameters, rel=rel)
    assert count_parameters(shape, experts=shape.experts_active) == pytest.approx(row.active_parameters, rel=rel)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("Qwen2.5-7B", 7_615_616_512),
        ("gemma-2-9b", 9_241_705_984),
        ("mixtral-8x7b", 46_702_792_704),
    ],
)
def test_published_counts(name, parameters):
    """The counts their publishers give."""
    assert find_shape(MATRIX, name).parameters == parameters


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(UnknownError) as caught:
        find_shape(MATRIX, "llama-3.1-9b")
    assert any("llama-3.1-8b" in hint for hint in caught.value.hints)


def test_a_config_says_what_the_catalogue_says():
    shape = make_shape(MATRIX, "x", parameters=None, sizes=read_config(json.dumps(LLAMA), "config.json"))
    assert shape.parameters == find_shape(MATRIX, "llama-3.1-8b").parameters
    assert shape.assumed == ()


def test_a_config_of_text_and_pictures_is_read_one_level_down():
    sizes = read_config(json.dumps({"model_type": "both", "text_config": LLAMA}), "config.json")
    assert (sizes["layers"], sizes["kv_heads"]) == (32, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ("{}", "does not state layers"),
        (json.dumps({**LLAMA, "hidden_size": "4096"}), "whole number"),
        (json.dumps({**LLAMA, "hidden_size": 0}), "whole number"),
        (json.dumps({**LLAMA, "num_hidden_layers": True}), "whole number"),
        ("[" * 100_000, "not JSON"),
    ],
    ids=["cut", "list", "empty", "text", "zero", "flag", "deep"],
)
def test_a_config_that_is_none_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        read_config(text, "config.json")


@pytest.mark.parametrize(
    ("parameters", "sizes", "said"),
    [
        (None, {}, "not described"),
        (0, {}, "is none"),
        (-1.0, {}, "is none"),
        (1e30, {}, "is none"),
        (float("nan"), {}, "is none"),
        (None, {"layers": 2, "hidden": 100, "heads": 7}, "not divided"),
        (None, {"layers": 2, "hidden": 64, "heads": 8, "kv_heads": 3}, "cannot share"),
        (None, {"layers": 2, "hidden": 64, "experts": 4, "experts_active": 8}, "more than the layer has"),
        (70e9, {"layers": 32, "hidden": 4096}, "billion parameters, not 70"),
        (None, {"layers": -1, "hidden": 64}, "make no model"),
    ],
)
def test_a_model_that_cannot_be_is_refused(parameters, sizes, said):
    with pytest.raises(UsageError, match=said):
        make_shape(MATRIX, "x", parameters=parameters, sizes=sizes)


@pytest.mark.parametrize("parameters", [1e6, 5e8, 8e9, 33e9, 1e12])
def test_a_count_alone_makes_a_shape_of_that_size_and_says_that_it_was_assumed(parameters):
    shape = make_shape(MATRIX, "x", parameters=parameters, sizes={})
    assert shape.parameters == parameters
    assert shape.heads % shape.kv_heads == 0
    assert count_parameters(shape) == pytest.approx(parameters, rel=0.7)
    assert "scaled" in shape.assumed[0]
