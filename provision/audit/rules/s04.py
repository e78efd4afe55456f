"""The withdrawn key of the CUDA repository."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "S04"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the file of the key; deleting the key is what everybody should do."""
    del options
    keys = matrix.setting("audit_rules.toml", "withdrawn_keys").values
    for command in environment.own_commands:
        for word in command.words:
            key = next((name for name in keys if word.text and f"{name}.pub" in word.text.lower()), None)
            if key is not None:
                yield found(
                    matrix,
                    ID,
                    span=word.span,
                    message=f"the key {key} was withdrawn",
                    reasons=("the CUDA repository has been signed with another key since April 2022",),
                    facts=("knowledge/key2022",),
                )
