"""The shape of a model: what its memory and its speed follow from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import ModelShape
from provision.records import record, replace

SIZES = ("layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocab", "experts", "experts_active")
"""What a shape can be told, beside its number of parameters."""

_LARGEST = 10**15
_MISMATCH = 0.1
_CONFIG_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "head_size": ("head_dim",),
    "ffn": ("moe_intermediate_size", "intermediate_size", "n_inner", "ffn_hidden_size", "d_ff"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_active": ("num_experts_per_tok", "num_experts_per_token"),
}
_TWO_MATRICES = ("gelu", "gelu_new", "gelu_fast", "relu", "gelu_pytorch_tanh", "quick_gelu")
_GATED_FAMILIES = ("gemma",)


@record
class Shape:
    """A transformer as far as memory and speed go.

    Attributes:
        name: As people call it.
        parameters: All of them; ``active_parameters`` are those one token passes through.
        head_size: Width of one attention head.
        ffn: Width of a feed-forward network, of one expert where there are experts.
        experts: Feed-forward networks a layer; 1 without experts. ``experts_active`` are those a token passes.
        is_gated: The feed-forward network has three matrices.
        is_tied: Both ends of the vocabulary share one matrix.
        assumed: What nobody said and was filled in, one sentence each.
    """

    name: str
    parameters: int
    active_parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    experts: int = 1
    experts_active: int = 1
    is_gated: bool = True
    is_tied: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def end_parameters(self) -> int:
        """Parameters outside the layers: embedding and output."""
        return self.vocab * self.hidden * (1 if self.is_tied else 2)

    @property
    def layer_parameters(self) -> float:
        """Parameters of one layer."""
        return max(self.parameters - self.end_parameters, 0) / self.layers


def count_parameters(shape: Shape, *, experts: int | None = None) -> int:
    """Return the number of parameters that follows from a shape; norms are in it, biases are not.

    Args:
        shape: The shape; its own counts are not read.
        experts: Experts to count a layer; all without it.

    Source: the layers of LLaMA (arXiv:2302.13971): four attention matrices, two or three feed-forward ones, two norms.
    """
    count = shape.experts if experts is None else experts
    attention = 2 * shape.hidden * shape.head_size * (shape.heads + shape.kv_heads)
    router = shape.hidden * shape.experts if shape.experts > 1 else 0
    network = shape.hidden * shape.ffn * (3 if shape.is_gated else 2) * count
    return shape.layers * (attention + network + router + 2 * shape.hidden) + shape.end_parameters + shape.hidden


def find_shape(matrix: Matrix, name: str) -> Shape:
    """Return the shape of a published model.

    Args:
        matrix: The facts.
        name: An id or an alias, in any case (``llama-3.1-8b``).

    Raises:
        UnknownError: The facts have no such model.
    """
    wanted = name.strip().lower()
    rows: tuple[ModelShape, ...] = matrix.rows("models.toml", "model")
    names = {spelling.lower(): row for row in rows for spelling in (row.id, row.name, *row.aliases)}
    row = names.get(wanted) or names.get(wanted.rpartition("/")[2])
    if row is None:
        near = get_close_matches(wanted, sorted(names), n=1)
        raise UnknownError(
            f"no model called `{name[:80]!s}` is in the facts",
            because=(f"they have {len(rows)}, from {rows[0].id} to {rows[-1].id}",),
            hints=(
                *((f"did you mean `{names[near[0]].id}`?",) if near else ()),
                "`--config config.json` reads the shape of any other model",
                "`--params 8e9` is enough where the rest may be assumed",
            ),
        )
    return Shape(
        name=row.id,
        parameters=row.parameters,
        active_parameters=row.active_parameters,
        layers=row.layers,
        hidden=row.hidden,
        heads=row.heads,
        kv_heads=row.kv_heads,
        head_size=row.head_size,
        ffn=row.ffn,
        vocab=row.vocab,
        experts=row.experts or 1,
        experts_active=row.experts_active or 1,
        is_gated=row.is_gated,
        is_tied=row.is_tied,
    )


_CONFIG_HINT = "name the `config.json` of a model as it was published"


def read_config(text: str, name: str) -> dict[str, Any]:
    """Return the sizes that the ``config.json`` of a model states.

    Args:
        text: The file.
        name: How messages call it.

    Returns:
        Keys of :data:`SIZES`, ``is_gated`` and ``is_tied``, as far as the file states them.

    Raises:
        UsageError: No JSON, no transformer, or sizes that are no whole numbers.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        because = str(error)[:120] if text.strip() else "it is empty"
        raise UsageError(f"{name} is not JSON", because=(because,), hints=(_CONFIG_HINT,)) from error
    if isinstance(document, dict) and isinstance(document.get("text_config"), dict):
        # Models of text and pictures keep the transformer one level down.
        document = {**document, **document["text_config"]}
    if not isinstance(document, dict):
        raise UsageError(f"{name} is not an object", hints=(_CONFIG_HINT,))
    found: dict[str, Any] = {}
    for size, keys in _CONFIG_KEYS.items():
        key = next((key for key in keys if document.get(key) is not None), None)
        if key is None:
            continue
        value = document[key]
        if type(value) is not int or value < 1:
            raise UsageError(
                f"{name}: `{key}` must be a whole number above 0, not {str(value)[:40]}", hints=(_CONFIG_HINT,)
            )
        found[size] = value
    missing = [size for size in ("layers", "hidden", "heads", "vocab") if size not in found]
    if missing:
        raise UsageError(
            f"{name} does not state {', '.join(missing)}",
            because=(f"none of {', '.join(_CONFIG_KEYS[missing[0]])} is in it",),
            hints=("name the `config.json` of a transformer, or give `--layers`, `--hidden`, … yourself",),
        )
    act = document.get("hidden_act") or document.get("activation_function") or "silu"
    family = str(document.get("model_type", ""))
    found["is_gated"] = act not in _TWO_MATRICES or family.startswith(_GATED_FAMILIES)
    found["is_tied"] = bool(document.get("tie_word_embeddings", False))
    return found


def make_shape(matrix: Matrix, name: str, *, parameters: float | None, sizes: Mapping[str, Any]) -> Shape:
    """Return a shape from what a person knows of it, the rest filled in and said so.

    Args:
        matrix: The facts, for the published model nearest in size.
        name: How to call it.
        parameters: Number of parameters.
        sizes: As :func:`read_config` returns them.

    Raises:
        UsageError: The sizes contradict themselves or the number of parameters.
    """
    _check_sizes(parameters, sizes)
    if "layers" in sizes and "hidden" in sizes:
        shape = _from_sizes(name, sizes)
        counted = count_parameters(shape)
        active = count_parameters(shape, experts=shape.experts_active)
        if parameters is None:
            return replace(shape, parameters=counted, active_parameters=active)
        if abs(counted - parameters) > _MISMATCH * parameters:
            raise UsageError(
                f"the sizes make {counted / 1e9:.3g} billion parameters, not {parameters / 1e9:.3g}",
                because=(
                    f"{shape.layers} layers of width {shape.hidden} with feed-forward networks of {shape.ffn} and a "
                    f"vocabulary of {shape.vocab}",
                ),
                hints=("leave `--params` out to take what the sizes make",),
            )
        return replace(shape, parameters=int(parameters), active_parameters=int(parameters * active / counted))
    if parameters is None:
        raise UsageError(
            "the model is not described",
            hints=("name it with `--model`, `--config` or `--params`, or give `--layers` and `--hidden`",),
        )
    return _from_count(matrix, name, parameters, sizes)


def _check_sizes(parameters: float | None, sizes: Mapping[str, Any]) -> None:
    if parameters is not None and not 1 <= parameters <= _LARGEST:
        raise UsageError(f"a model of {parameters:g} parameters is none", hints=("write them as in `--params 8e9`",))
    for size in SIZES:
        value = sizes.get(size)
        if value is not None and not 1 <= value <= _LARGEST:
            raise UsageError(f"{size} of {value} make no model")
    heads, kv_heads = sizes.get("heads"), sizes.get("kv_heads")
    if heads is not None and kv_heads is not None and heads % kv_heads:
        raise UsageError(
            f"{heads} attention heads cannot share {kv_heads} of keys and values",
            because=("each of the latter serves the same number of the former",),
        )
    hidden = sizes.get("hidden")
    if hidden is not None and heads is not None and sizes.get("head_size") is None and hidden % heads:
        raise UsageError(
            f"a width of {hidden} is not divided by {heads} heads", hints=("give the width of a head: `--head-size`",)
        )
    if (sizes.get("experts_active") or 1) > (sizes.get("experts") or 1):
        raise UsageError(f"{sizes['experts_active']} experts a token are more than the layer has")


def _from_sizes(name: str, sizes: Mapping[str, Any]) -> Shape:
    assumed: list[str] = []

    def given(size: str, otherwise: int, why: str) -> int:
        if sizes.get(size) is not None:
            return int(sizes[size])
        if why:
            assumed.append(f"{size} is {otherwise}: {why}")
        return otherwise

    hidden = int(sizes["hidden"])
    head_size = sizes.get("head_size") or (hidden // sizes["heads"] if sizes.get("heads") else min(128, hidden))
    heads = given("heads", max(hidden // head_size, 1), f"heads of {head_size}")
    kv_heads = given("kv_heads", heads, "" if "heads" not in sizes else "every head has its own keys and values")
    is_gated = bool(sizes.get("is_gated", True))
    ffn = given("ffn", 4 * hidden if not is_gated else int(8 * hidden / 3), "the usual multiple of the width")
    return Shape(
        name=name,
        parameters=0,
        active_parameters=0,
        layers=int(sizes["layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=int(head_size),
        ffn=ffn,
        vocab=given("vocab", 32000, "a usual vocabulary"),
        experts=int(sizes.get("experts") or 1),
        experts_active=int(sizes.get("experts_active") or 1),
        is_gated=is_gated,
        is_tied=bool(sizes.get("is_tied", False)),
        assumed=tuple(assumed),
    )


def _from_count(matrix: Matrix, name: str, parameters: float, sizes: Mapping[str, Any]) -> Shape:
    """Scale the published dense model nearest in size, widths and depth alike."""
    rows = [row for row in matrix.rows("models.toml", "model") if not row.experts]
    near = find_shape(matrix, min(rows, key=lambda row: (abs(_ratio(row.parameters, parameters)), row.id)).id)
    factor = (parameters / near.parameters) ** (1 / 3)
    heads = max(round(near.heads * factor), 1)
    kv_heads = max(round(near.kv_heads * factor), 1)
    changes: dict[str, Any] = {
        "layers": max(round(near.layers * factor), 1),
        "hidden": max(round(near.hidden * factor), 1),
        "heads": heads,
        "kv_heads": next(count for count in range(min(kv_heads, heads), 0, -1) if heads % count == 0),
        "ffn": max(round(near.ffn * factor), 1),
    }
    # A small model does not spend most of itself on words.
    changes["vocab"] = max(min(near.vocab, int(parameters / (4 * changes["hidden"]))), 1)
    changes |= {size: sizes[size] for size in SIZES if sizes.get(size) is not None}
    said = f"the shape is that of {near.name}, scaled to {parameters / 1e9:.3g} billion parameters"
    shape = replace(near, name=name, parameters=int(parameters), active_parameters=int(parameters), **changes)
    return replace(shape, assumed=(said,))


def _ratio(left: float, right: float) -> float:
    return max(left, right) / min(left, right)
