"""Shapes of language models: what a name says about sizes."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from provision.errors import DataError, UnknownError, UsageError
from provision.predict.request import PredictRequest
from provision.records import record

_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)\s*x\s*)?(\d+(?:[._]\d+)?)([mbt])(?![a-z0-9])")
_ACTIVE = re.compile(r"(?<![a-z0-9.])a(\d+(?:\.\d+)?)b(?![a-z])")
_ENDING = re.compile(
    r"[-_. ](instruct|chat|base|it|hf|exp|thinking|preview|terminus|gguf|dynamic|block|quantized|(nv|mx)?fp\d+|bf16|"
    r"awq|gptq|int\d|w\d+a\d+|kv\d+|q\d\w*|v\d+(\.\d+)*|\d{4})$"
)
"""What a name may end with without its model having another shape: how it was tuned or stored, and when."""
_MAKERS = re.compile(r"^(nvidia|meta)[-_ ]")
_UNIT = {"m": 1e6, "b": 1e9, "t": 1e12}
_ASPECT_EXPONENT = 0.35
"""Layers grow about as parameters to this power; see :func:`_guess`."""


@record
class Shape:
    """Sizes of one transformer.

    ``cache_values`` counts the numbers that one token leaves in the key-value cache of one layer; ``cached_share`` of
    the layers keep all tokens, the others a window. A token meets ``expert_share`` of the experts, 1 where there are
    none. ``latent_heads`` are the attention heads over a latent cache, 0 where keys and values are kept as they are.
    ``is_exact`` is False where layers and width were guessed from the number of parameters.
    """

    name: str
    parameters: float
    active_parameters: float
    layers: int
    hidden: int
    cache_values: float
    heads: int = 1
    kv_heads: int = 8
    latent_heads: int = 0
    expert_share: float = 1.0
    cached_share: float = 1.0
    is_exact: bool = True

    @property
    def is_sparse(self) -> bool:
        """Tell whether a token meets only some of the parameters."""
        return self.active_parameters < 0.9 * self.parameters

    @property
    def routed_parameters(self) -> float:
        """Parameters of the experts among which tokens choose."""
        if self.expert_share >= 1:
            return 0.0
        return min(self.parameters, (self.parameters - self.active_parameters) / (1 - self.expert_share))

    @property
    def attention_width(self) -> float:
        """Numbers of one token's query that meet each token before it, and of the value that comes of it, on average.

        Source: arXiv:2405.04434 (of latent attention, 128 + 64 and 128 a head).
        """
        return self.latent_heads * (192 + 128) / 2 or self.heads * self.cache_values / (2 * self.kv_heads)

    def training_flop(self, sequence: int) -> float:
        """Return the operations of one token's forward and backward pass.

        Args:
            sequence: Tokens a sequence holds.

        Source: Kaplan et al. 2020 (6 N) with the attention term of Chowdhery et al. 2022, appendix B (12 L d s).
        """
        return 6 * self.active_parameters + 12 * self.layers * self.hidden * sequence


class Shapes:
    """Looks shapes up by the names that people and tables write.

    Args:
        data_dir: A folder laid out like ``compat/``.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    @cached_property
    def _rows(self) -> dict[str, dict[str, Any]]:
        own = _parse(self._data_dir / "predict" / "models.json", json.loads)
        facts = _parse(self._data_dir / "models.toml", tomllib.loads)
        rows: dict[str, dict[str, Any]] = {}
        for row in facts["model"]:
            shape = {**row, "cache_values": 2 * row["kv_heads"] * row["head_size"]}
            for name in (row["id"], *row.get("aliases", ())):
                rows[_fold(name)] = shape
        for row in own["models"]:
            for name in (row["id"], *row.get("aliases", ())):
                rows[_fold(name)] = row
        for alias, name in own["aliases"].items():
            if _fold(name) not in rows:
                raise DataError(f"predict/models.json: `{alias}` means `{name}`, which no file has")
            rows[_fold(alias)] = rows[_fold(name)]
        return rows

    @property
    def names(self) -> tuple[str, ...]:
        """Ids of the models whose shape is in the facts, sorted."""
        return tuple(sorted({row["id"] for row in self._rows.values()}))

    def of(self, request: PredictRequest) -> Shape:
        """Return the shape a request speaks of: its own sizes first, then its model's name.

        Raises:
            UnknownError: Neither sizes nor a known or telling name.
            UsageError: More parameters are active than there are.
        """
        row = self._row(request.model or "")
        total = request.parameters or (row or {}).get("parameters")
        share = row.get("active_parameters", row["parameters"]) / row["parameters"] if row else None
        active = request.active_parameters or (share * total if share and total else None)
        if total is None and request.model:
            total, active = _read_size(request.model)
        if total is None:
            raise UnknownError(
                f"the size of the model `{request.model or ''}` is not known",
                hints=("give it: `--params 8e9`", f"or name one of {', '.join(self.names[:6])}, …"),
            )
        if active is not None and active > total:
            raise UsageError(
                f"a token meets {active:.4g} of {total:.4g} parameters",
                hints=("give `--active-params` below `--params`",),
            )
        layers, hidden = _guess(active or total)
        layers = request.layers or (row or {}).get("layers") or layers
        hidden = request.hidden or (row or {}).get("hidden") or hidden
        exact = bool(row and row.get("layers")) or bool(request.layers and request.hidden)
        cache = (row or {}).get("cache_values") or min(2 * hidden, 2048)
        return Shape(
            name=(row or {}).get("id") or request.model or f"{total:.3g} parameters",
            parameters=total,
            active_parameters=active or total,
            layers=layers,
            hidden=hidden,
            cache_values=cache,
            heads=(row or {}).get("heads") or max(1, hidden // 128),
            kv_heads=(row or {}).get("kv_heads") or 8,
            latent_heads=(row or {}).get("latent_heads") or 0,
            expert_share=_expert_share(row, total, active or total),
            cached_share=(row or {}).get("cached_share") or 1.0,
            is_exact=exact,
        )

    def _row(self, name: str) -> dict[str, Any] | None:
        bare = name.rsplit("/", 1)[-1].lower()
        while bare:
            for spelling in (bare, _MAKERS.sub("", bare)):
                if _fold(spelling) in self._rows:
                    return self._rows[_fold(spelling)]
            shorter = _ENDING.sub("", bare)
            if shorter == bare:
                return None
            bare = shorter
        return None


def _expert_share(row: dict[str, Any] | None, total: float, active: float) -> float:
    """Return the share of the experts that a token meets; where nobody says, that of the parameters."""
    if row and row.get("experts"):
        return float(row["experts_active"] / row["experts"])
    return active / total if active < 0.9 * total else 1.0


def _parse(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        document: dict[str, Any] = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read", because=(str(error),)) from error
    return document


def _fold(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _read_size(name: str) -> tuple[float | None, float | None]:
    """Return the parameters, and the active ones, that a name such as ``Qwen3_30B_a3B`` tells."""
    text = re.sub(r"[_\-\s/]+", " ", name.lower())
    active = _ACTIVE.search(text)
    size = _SIZE.search(_ACTIVE.sub(" ", text))
    if size is None:
        return None, None
    count = float(size[2].replace("_", ".")) * float(size[1] or 1)
    total = count * _UNIT[size[3]]
    return total, float(active[1]) * 1e9 if active else None


def _guess(parameters: float) -> tuple[int, int]:
    """Return layers and width of a dense decoder of so many parameters.

    Widely used decoders have 32 layers and a width of 4096 at 6.7·10⁹ parameters, and hold N = 12 L d².

    Source: Brown et al. 2020, table 2.1, of which this is the middle line.
    """
    layers = max(4, round(32 * (parameters / 6.7e9) ** _ASPECT_EXPONENT))
    return layers, max(64, round(math.sqrt(parameters / (12 * layers))))
