"""A pinned package that needs another torch than the pinned one."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.companions import fact_ids, needs_of
from provision.audit.model import WARN, Environment, Finding, Install, Options
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, admits, standing
from provision.matrix.load import Matrix
from provision.versions import parse

ID = "C11"

_PULLERS = ("vllm", "xformers", "torchtext")
_FAMILY = ("torch", "torchaudio", "torchvision")
_BESIDE_A_BASE = "torchtext"
"""In one command with torch an installer refuses it, which another rule tells with the ways out."""


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the torch pin of the release against the torch that stands at the end."""
    torch = standing(environment, matrix, "torch")
    have = torch.version if torch is not None else None
    if torch is None or have is None:
        return
    for install, requirement in environment.requirements():
        if requirement.name not in _PULLERS or requirement.version is None or requirement.applies is not True:
            continue
        if install.has_no_deps or install.is_dry or not install.is_certain:
            continue
        if requirement.name == _BESIDE_A_BASE and torch.install.installer != "base":
            continue
        if install.target != torch.install.target:
            continue
        version = requirement.version.partition("+")[0]
        needs = needs_of(matrix, requirement.name, version)
        if needs is None or admits(needs, have):
            continue
        right = [
            row
            for row in matrix.companions
            if row.package == requirement.name and row.requires.get("torch") == f"=={have}"
        ]
        best = max((row.version for row in right), key=parse, default=None)
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.name} {version} needs torch{needs}, and torch {have} is installed",
            reasons=(f"the metadata of {requirement.name} {version} asks torch{needs}",),
            hint=f"{requirement.name} {best} is the newest for torch {have}" if best else "",
            facts=fact_ids(matrix, requirement.name, version),
            # A later command takes the other torch, and what was there before is gone.
            severity=WARN if _is_replaced(install, torch) else "",
        )


def _is_replaced(install: Install, torch: Wanted) -> bool:
    """Tell whether an installer may put another torch in the place of the one that stands."""
    is_bound = any(item.name in _FAMILY and item.version is not None for item in install.requirements)
    return not is_bound and install.span != torch.install.span and torch.install.installer in ("pip", "uv", "base")
