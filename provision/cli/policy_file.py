"""Scaling policies as people write them: TOML files, and flags that count before them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.cli.output import Output
from provision.errors import ProvisionError, UsageError
from provision.files import read_text
from provision.generate.scaling.policy import Policy, read_policy
from provision.matrix.load import Matrix

_BYTES_MAX = 64 * 1024


def policy_limits(matrix: Matrix) -> dict[str, float]:
    """Return what a policy takes where nobody says otherwise, by id; idle is what the alerts call idle."""
    limits = {row.id: row.value for row in matrix.rows("scaling.toml", "limit")}
    return {"policy.in-below.utilisation": matrix.limit("idle.activity"), **limits}


def load_policy(path: Path | None, given: Mapping[str, Any], matrix: Matrix, output: Output | None = None) -> Policy:
    """Return the policy of a file, of flags, or of both.

    Args:
        path: The TOML file; ``-`` is the standard input, ``None`` is not a file.
        given: Keys of flags; each counts before the file's.
        matrix: The defaults.
        output: Where to say that a flag overrides the file; nowhere unless given.

    Raises:
        UsageError: The file cannot be read or is not TOML, or the policy makes no sense; the message names the file.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(read_text(path, "POLICY", bytes_max=_BYTES_MAX))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise UsageError(
                f"POLICY: {path} is not TOML", because=(str(error),), hints=("write lines such as `minimum = 2`",)
            ) from error
    for key in given:
        if output is not None and key in values and values[key] != given[key]:
            output.note(f"--{key.replace('_', '-')} counts before the `{key}` of {path}")
    try:
        return read_policy({**values, **given}, policy_limits(matrix))
    except ProvisionError as error:
        if path is None:
            raise
        raise type(error)(f"{path}: {error.message}", because=error.because, hints=error.hints) from error
