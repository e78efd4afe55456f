"""Names of precisions, as tables and people write them, and what a GPU must be to compute in one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.matrix.load import Matrix

_FACT = "precision_capability"
# In this order: the wide words are part of the narrow ones.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"mx_?fp_?8|fp_?8_?mx", "mxfp8"),
    (r"nv_?fp_?4", "nvfp4"),
    (r"mx_?fp_?4|fp_?4_?mx", "mxfp4"),
    (r"(fp|float)_?4", "fp4"),
    (r"(fp|float|f)_?8|e4m3|e5m2", "fp8"),
    (r"awq|gptq|w4a16|w4a8|u?int_?4|(?<![a-z0-9])i?q4", "int4"),
    (r"u?int_?8|w8a8|w8a16|(?<![a-z0-9])i?q8", "int8"),
    (r"bf_?16|b(rain)?_?float_?16", "bf16"),
    (r"tf_?32|tensor_?float_?32|xf_?32", "tf32"),
    (r"(fp|float|f)_?16|half", "fp16"),
    (r"(fp|float|f)_?32|single|full_precision", "fp32"),
)
_MIXED = r"(?<![a-z])(amp|mixed|autocast)(?![a-z]*[0-9])|automatic_mixed"
_ALIKE = {"fp4": "nvfp4", "mxfp4": "nvfp4"}
"""Precision → the one whose arithmetic it uses."""


def read_precision(text: str) -> str | None:
    """Return the name a precision has here, ``None`` where nothing says which it is.

    ``BFloat16``, ``torch.bfloat16`` and ``bf16`` are one, and so are ``FP8-CS`` and ``float8_e4m3fn``; mixed precision
    keeps its mark (``amp``, ``amp_bf16``).

    Args:
        text: As somebody wrote it.
    """
    folded = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    is_mixed = re.search(_MIXED, folded) is not None
    for pattern, name in _WORDS:
        if re.search(pattern, folded):
            return f"amp_{name}" if is_mixed and name in ("bf16", "fp16", "fp8") else name
    return "amp" if is_mixed else None


def first_capabilities(matrix: Matrix) -> Mapping[str, str]:
    """Return precision → the compute capability whose tensor cores begin to compute in it.

    Raises:
        DataError: The facts lack it.
    """
    return matrix.setting("gpus.toml", _FACT).entries


def is_lacking(capability: str, precision: str, firsts: Mapping[str, str]) -> str | None:
    """Return the compute capability that a precision needs where a GPU is below it, else ``None``.

    Args:
        capability: The GPU's.
        precision: As :func:`read_precision` returns it.
        firsts: As :func:`first_capabilities` returns them; a precision that is not among them needs nothing.
    """
    bare = precision.removeprefix("amp_")
    needed = firsts.get(_ALIKE.get(bare, bare))
    return needed if needed is not None and _parse(capability) < _parse(needed) else None


def _parse(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)
