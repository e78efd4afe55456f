"""conda with its default channels, whose terms nobody has accepted."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Command, Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "B11"

_CONDA = "conda"
_ASKING = ("create", "install", "update", "upgrade")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for a newest conda, and for its first command that reads channels before anything might settle the terms."""
    settings = matrix.settings("audit_rules.toml")
    marks = settings["conda_terms_marks"].values
    if any(name in marks for name in environment.variables):
        return
    if any(destination is None or "conda" in destination for _, destination in environment.copied):
        # A file of settings may be among what is copied.
        return
    is_there = _is_base(environment, settings["conda_terms_images"].values)
    for command in environment.commands:
        texts = [word.text or "" for word in command.words]
        if any(mark in text for text in texts for mark in marks) or _is_settled(command, texts):
            return
        if any(installer in text for text in texts for installer in settings["conda_terms_installers"].values):
            is_there = True
        if is_there and _is_asking(command, texts):
            yield found(
                matrix,
                ID,
                span=command.span,
                message="conda asks to accept the terms of its default channels, and the build cannot answer",
                reasons=("the newest conda ends with CondaToSNonInteractiveError where it cannot ask",),
            )
            return


def _is_base(environment: Environment, images: Iterable[str]) -> bool:
    """Tell whether the base is the newest image of conda: one that names no release."""
    base = environment.base
    return (
        base is not None and base.repository in tuple(images) and base.tag in ("", "latest", None) and not base.digest
    )


def _is_settled(command: Command, texts: list[str]) -> bool:
    """Tell whether a command may accept the terms or take the channels out."""
    if command.program is None or (command.program in ("bash", "sh", "source", ".") and not texts[1:2]):
        return True
    if any("condarc" in text for text in texts):
        return True
    return command.program == _CONDA and (texts[1:2] == ["tos"] or (texts[1:2] == ["config"] and len(texts) > 2))


def _is_asking(command: Command, texts: list[str]) -> bool:
    if command.program != _CONDA or texts[1:2] == [] or texts[1] not in _ASKING:
        return False
    return command.is_certain and command.instruction == "RUN" and "--override-channels" not in texts
