"""PyTorch from conda, and another torch from pip in the same environment."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.channels import conda_pytorch, wish_of
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import admits
from provision.matrix.load import Matrix
from provision.resolve.request import matches

ID = "C16"

_TORCH = "torch"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold what pip is asked for against every release that conda may have taken."""
    wishes = list(conda_pytorch(environment))
    if len(wishes) != 1:
        return
    first, torch = wishes[0]
    wish = wish_of(torch)
    have = [row.version for row in matrix.torch_releases if wish is not None and matches(wish, row.version)]
    if not have or not first.is_certain or first.is_dry:
        return
    for install, requirement in environment.requirements():
        if requirement.name != _TORCH or requirement.ecosystem != "pypi" or requirement.applies is not True:
            continue
        # What is without a name goes where conda put the rest, unless a virtual environment stands between.
        if install.is_dry or not install.is_certain or install.target not in ("", first.target):
            continue
        specifiers = [requirement.specifier or (f"=={requirement.version}" if requirement.version else "")]
        specifiers += [item.specifier for item in install.constraints if item.name == _TORCH]
        if any(all(admits(text, version) for text in specifiers) for version in have):
            continue
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.text} replaces the PyTorch that conda installed",
            reasons=(
                f"conda is asked for {torch.text}, and pip takes that for torch {wish}",
                "what conda built against its own PyTorch is then loaded into another one",
            ),
            facts=[f"torch/{version}" for version in have],
        )
