"""A platform for which the build exists without CUDA only."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, Wanted, effective, platform_of, resolve
from provision.audit.ways import ways_of
from provision.audit.wording import facts_of, reasons_of
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS
from provision.resolve.stack import Refusal

ID = "P01"

_ARM = "linux/arm64"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Ask the resolver for the same build on Arm; of PyPI's own builds the facts tell which are for Arm."""
    if _ARM not in platform_of(environment, options):
        return
    for framework in FRAMEWORKS:
        wanted = effective(environment, matrix, framework)
        if wanted is None or wanted.variant == CPU or (wanted.variant is None and not wanted.is_default):
            continue
        if framework != "torch" and wanted.variant in (None, "system-cuda"):
            continue
        refusal = resolve(environment, matrix, options, wanted, platform=_ARM)
        on_other = resolve(environment, matrix, options, wanted, platform="linux/amd64")
        is_refused = isinstance(refusal, Refusal) and refusal.is_proved
        if isinstance(refusal, Refusal) and is_refused and not isinstance(on_other, Refusal):
            yield found(
                matrix,
                ID,
                span=wanted.requirement.span,
                message=f"{wanted.requirement.text} has no CUDA build for {_ARM}",
                reasons=reasons_of(refusal),
                ways=ways_of(environment, matrix, options, wanted),
                facts=facts_of(refusal),
            )
        elif wanted.framework == "torch" and wanted.is_default and _is_cpu_on_arm(matrix, wanted):
            yield found(
                matrix,
                ID,
                span=wanted.requirement.span,
                message=f"torch {wanted.version} from PyPI is a CPU build on {_ARM}",
                reasons=("PyPI's own Arm wheels of this release have no CUDA",),
                hint="take a CUDA build from PyTorch's index" if not isinstance(refusal, Refusal) else "",
                facts=("knowledge/torch-arm64-cpu", f"torch/{wanted.version}"),
            )


def _is_cpu_on_arm(matrix: Matrix, wanted: Wanted) -> bool:
    """Tell whether the release is known and none of its builds is what PyPI serves for Arm."""
    if wanted.version is None:
        return False
    builds = matrix.torch_builds_of({wanted.version})
    return bool(builds) and all(row.arm64_index is None for row in builds)
