"""onnxruntime beside onnxruntime-gpu: two packages that put the same files into one folder."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options, Requirement
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "C21"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the plain package and the one for GPUs, or for one that another package brings beside it."""
    pairs = matrix.setting("audit_rules.toml", "same_files").entries
    asked: dict[tuple[str, str], Requirement] = {}
    for install, requirement in environment.requirements():
        is_sure = install.is_certain and not install.is_dry and requirement.applies is True
        if requirement.ecosystem == "pypi" and is_sure:
            asked.setdefault((install.target, requirement.name), requirement)
    for (target, name), requirement in asked.items():
        plain = pairs.get(name)
        if plain is None:
            continue
        other = asked.get((target, plain))
        brings = "" if other is not None else _bringer(environment, matrix, options, plain)
        if other is None and not brings:
            continue
        later = max((requirement, *([other] if other is not None else [])), key=lambda item: item.span.start)
        yield found(
            matrix,
            ID,
            span=later.span,
            message=f"{plain} and {name} write the same files",
            reasons=(
                *([f"`{brings}` brings {plain}"] if brings else []),
                "both put their files into one folder, and what is installed last is what is loaded",
            ),
        )


def _bringer(environment: Environment, matrix: Matrix, options: Options, name: str) -> str:
    """Return the command that brings a distribution which nothing names, as far as that is known; empty for none."""
    from provision.audit.solved import brings

    return next((install.command for install in brings(environment, matrix, options, name)), "")
