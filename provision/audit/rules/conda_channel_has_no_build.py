"""PyTorch from its conda channel, and no build among what is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.channels import CUDA_CHOICE, PYTORCH, is_from_channel, wish_of
from provision.audit.model import Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import cuda_of
from provision.matrix.load import Matrix
from provision.matrix.model import TorchRelease
from provision.resolve.request import matches
from provision.versions import minor_of, parse

ID = "C13"

_TOOLKIT = "cudatoolkit"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold each conda install from the channel pytorch against what the channel has."""
    for install in environment.installs:
        if install.installer != "conda" or not install.is_complete or not is_from_channel(install, is_alone=False):
            continue
        asked = {item.name: item for item in install.requirements if item.ecosystem == "conda"}
        no_choice = _no_choice(matrix, asked.get(CUDA_CHOICE))
        if no_choice is not None:
            # No other channel has that package.
            yield no_choice
            continue
        torch = asked.get(PYTORCH)
        wish = wish_of(torch) if torch is not None else None
        if torch is None or wish is None:
            continue
        finding = _by_toolkit(matrix, wish, asked.get(CUDA_CHOICE), asked.get(_TOOLKIT))
        # What the channel lacks, another one that is asked behind it may have, but for a Python before all of its own.
        if finding is None:
            finding = _absent(matrix, install, torch, wish, asked.get(CUDA_CHOICE), is_alone=is_from_channel(install))
        if finding is not None:
            yield finding


def _releases(matrix: Matrix, wish: str) -> list[TorchRelease]:
    return [row for row in matrix.torch_releases if matches(wish, row.version)]


def _no_choice(matrix: Matrix, cuda: Requirement | None) -> Finding | None:
    """Return that the package that chooses the build never was there for this CUDA."""
    wanted = wish_of(cuda) if cuda is not None else None
    have = matrix.setting("audit_rules.toml", "conda_pytorch_cudas").values
    if cuda is None or wanted is None or any(matches(minor_of(wanted), minor) for minor in have):
        return None
    return found(
        matrix,
        ID,
        span=cuda.span,
        message=f"the channel pytorch has no {cuda.text}",
        reasons=(f"{CUDA_CHOICE} was made for CUDA {', '.join(have)}",),
        hint=f"for releases before that name another CUDA, write `{_TOOLKIT}` with its version in its place",
    )


def _by_toolkit(matrix: Matrix, wish: str, cuda: Requirement | None, toolkit: Requirement | None) -> Finding | None:
    """Return that the package which chose the build in former releases is asked for."""
    since = matrix.setting("audit_rules.toml", "conda_pytorch_cuda_since").value or "0"
    if toolkit is None or cuda is not None:
        return None
    if parse(wish) < parse(since):
        return _not_for_toolkit(matrix, wish, toolkit)
    if wish_of(toolkit) is None:
        # Without a version it asks for no CUDA, and another package may choose the build.
        return None
    return found(
        matrix,
        ID,
        span=toolkit.span,
        message=f"{toolkit.text} does not choose a CUDA build of pytorch {wish}",
        reasons=(f"from {since} on the channel chooses the build by {CUDA_CHOICE}",),
        hint=f"write `{CUDA_CHOICE}{toolkit.text.rpartition(_TOOLKIT)[2]}` in its place, and add the channel nvidia",
        facts=[f"torch/{row.version}" for row in _releases(matrix, wish)],
    )


def _not_for_toolkit(matrix: Matrix, wish: str, toolkit: Requirement) -> Finding | None:
    """Return that a toolkit is older or newer than any CUDA that a release was built for.

    Between these the channel may have builds that are no wheels.
    """
    releases = _releases(matrix, wish)
    have = sorted({cuda for row in releases for name in row.variants if (cuda := cuda_of(name))}, key=parse)
    wanted = wish_of(toolkit)
    minor = parse(wanted).release[:2] if wanted is not None else ()
    if not have or len(minor) < 2 or parse(have[0]).release[:2] <= minor <= parse(have[-1]).release[:2]:
        return None
    if not all(row.is_variants_complete for row in releases):
        return None
    return found(
        matrix,
        ID,
        span=toolkit.span,
        message=f"pytorch {wish} was never built for CUDA {wanted}",
        reasons=(f"its builds are for CUDA {', '.join(have)}",),
        facts=[f"torch/{row.version}" for row in releases],
    )


def _absent(
    matrix: Matrix, install: Install, torch: Requirement, wish: str, cuda: Requirement | None, *, is_alone: bool
) -> Finding | None:
    """Return that the channel has no such release, or none for this Python or this CUDA."""
    last = matrix.setting("audit_rules.toml", "conda_pytorch_last").value or "0"
    releases = _releases(matrix, wish)
    facts = [f"torch/{row.version}" for row in releases]
    if is_alone and parse(wish).release[:2] > parse(last).release[:2]:
        return found(
            matrix,
            ID,
            span=torch.span,
            message=f"the channel pytorch has no {torch.text}",
            reasons=(f"its last release is {last}",),
            hint="take pytorch from conda-forge, or torch from PyPI",
            facts=facts,
        )
    builds = matrix.torch_builds_of({row.version for row in releases})
    pythons = sorted({python for row in builds for python in row.pythons if not python.endswith("t")}, key=parse)
    python = parse(install.python) if install.python is not None and pythons else None
    if python is not None and (python < parse(pythons[0]) or (is_alone and python > parse(pythons[-1]))):
        return found(
            matrix,
            ID,
            span=torch.span,
            message=f"pytorch {wish} was never built for Python {install.python}",
            reasons=(f"its builds are for Python {', '.join(pythons)}",),
            hint="take one of these Pythons, or a release of pytorch for this one",
            facts=facts,
        )
    wanted = wish_of(cuda) if cuda is not None else None
    if (
        not is_alone
        or cuda is None
        or wanted is None
        or not releases
        or not all(row.is_variants_complete for row in releases)
    ):
        return None
    variants = sorted({variant for row in releases for variant in row.variants})
    have = [minor for variant in variants if (minor := cuda_of(variant)) is not None]
    if any(matches(wanted, minor) for minor in have):
        return None
    return found(
        matrix,
        ID,
        span=cuda.span,
        message=f"pytorch {wish} was never built for CUDA {wanted}",
        reasons=(f"its builds are for CUDA {', '.join(have)}",),
        facts=facts,
    )
