"""PyTorch from its conda channel, and no CUDA build among what is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import cuda_of
from provision.matrix.load import Matrix
from provision.resolve.request import matches
from provision.versions import parse

ID = "C13"

_PYTORCH = "pytorch"
_CUDA = "pytorch-cuda"
_TOOLKIT = "cudatoolkit"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold each conda install from the channel pytorch against what the channel has."""
    del options
    for install in environment.installs:
        if install.installer != "conda" or not install.is_complete or not _is_from_channel(install):
            continue
        asked = {item.name: item for item in install.requirements if item.ecosystem == "conda"}
        torch = asked.get(_PYTORCH)
        if torch is None or not torch.specifier:
            continue
        finding = _judge(matrix, torch, asked.get(_CUDA), asked.get(_TOOLKIT))
        if finding is not None:
            yield finding


def _is_from_channel(install: Install) -> bool:
    """Tell whether the channel pytorch is asked and none that builds PyTorch too."""
    channels = [
        (index.url or "?").rstrip("/").rpartition("/")[2] for index in install.indexes if index.kind == "channel"
    ]
    return _PYTORCH in channels and set(channels) <= {_PYTORCH, "nvidia", "defaults", "main", "nodefaults"}


def _judge(matrix: Matrix, torch: Requirement, cuda: Requirement | None, toolkit: Requirement | None) -> Finding | None:
    wish = _wish(torch)
    if wish is None:
        return None
    settings = matrix.settings("audit_rules.toml")
    since = settings["conda_pytorch_cuda_since"].value or "0"
    last = settings["conda_pytorch_last"].value or "0"
    facts = [f"torch/{row.version}" for row in matrix.torch_releases if matches(wish, row.version)]
    if parse(wish).release[:2] > parse(last).release[:2]:
        return found(
            matrix,
            ID,
            span=torch.span,
            message=f"the channel pytorch has no {torch.text}",
            reasons=(f"its last release is {last}",),
            hint="take pytorch from conda-forge, or torch from PyPI",
            facts=facts,
        )
    if toolkit is not None and cuda is None and parse(wish) >= parse(since):
        return found(
            matrix,
            ID,
            span=toolkit.span,
            message=f"{toolkit.text} does not choose a CUDA build of pytorch {wish}",
            reasons=(f"from {since} on the channel chooses the build by pytorch-cuda",),
            hint=f"write pytorch-cuda{toolkit.text.removeprefix(_TOOLKIT)} in its place",
            facts=facts,
        )
    wanted = _wish(cuda) if cuda is not None else None
    if cuda is None or wanted is None:
        return None
    releases = [row for row in matrix.torch_releases if matches(wish, row.version)]
    variants = sorted({variant for row in releases for variant in row.variants})
    if releases and all(row.is_variants_complete for row in releases):
        have = [minor for variant in variants if (minor := cuda_of(variant)) is not None]
        if not any(matches(wanted, minor) for minor in have):
            return found(
                matrix,
                ID,
                span=cuda.span,
                message=f"pytorch {wish} was never built for CUDA {wanted}",
                reasons=(f"its builds are for CUDA {', '.join(have)}",),
                facts=facts,
            )
    return None


def _wish(requirement: Requirement) -> str | None:
    """Return the version or prefix that is asked for; ``None`` for ranges."""
    if requirement.version is not None:
        return requirement.version
    found_ = re.fullmatch(r"==([0-9]+(?:\.[0-9]+)*)(?:\.\*)?", requirement.specifier)
    return found_[1] if found_ else None
