"""Which GPUs the frameworks of a node were built for, so that a host can be refused before anything is installed."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import capability_of
from provision.resolve.fit import cudnn_bounds
from provision.resolve.node_job import PLATFORM
from provision.resolve.options import Option, has_code_for, late_compiler, offer
from provision.resolve.request import parse_request
from provision.resolve.rules import excluded_pair
from provision.resolve.stack import NodeBuild, Stack
from provision.versions import parse, spec_of


def node_gpus(matrix: Matrix) -> tuple[Gpu, ...]:
    """Return the GPUs that a node can have: all but those that come with a processor of another kind."""
    return tuple(gpu for gpu in matrix.gpus if gpu.host is None or f"linux/{gpu.host}" == PLATFORM)


def capabilities_by_architecture(matrix: Matrix) -> dict[str, list[str]]:
    """Return GPU architecture → compute capabilities of its GPUs, both ascending."""
    found: dict[str, set[str]] = {}
    for gpu in node_gpus(matrix):
        found.setdefault(gpu.architecture, set()).add(gpu.compute_capability)
    rows = {name: sorted(capabilities, key=parse) for name, capabilities in found.items()}
    return dict(sorted(rows.items(), key=lambda row: (parse(row[1][0]), row[0])))


def describe_builds(found: Stack, driver: str, matrix: Matrix) -> tuple[NodeBuild, ...]:
    """Return what the frameworks of a stack were built for, in the stack's order.

    Args:
        found: The stack of one system.
        driver: Its version there: an old one does not compile the PTX of a newer CUDA.
        matrix: The facts that the solver judges GPUs by.
    """
    gpus = {gpu.compute_capability: gpu for gpu in node_gpus(matrix)}
    ordered = tuple(gpus[capability] for capability in sorted(gpus, key=parse))
    return tuple(
        _describe(option, driver, ordered, found.cudnn, matrix)
        for framework, version in found.frameworks.items()
        for option in offer(matrix, framework, parse_request({framework: version}), PLATFORM)
        if (option.version, option.variant) == (version, found.variants.get(framework))
    )


def _describe(option: Option, driver: str, gpus: tuple[Gpu, ...], cudnn: str | None, matrix: Matrix) -> NodeBuild:
    late = late_compiler(matrix, option, driver) if option.ptx else None
    judged = {gpu.compute_capability: _runs(option, gpu, cudnn, matrix, can_compile=late is None) for gpu in gpus}
    runs_on = tuple(text for text, has_code in judged.items() if has_code)
    is_counted = option.sm is None and option.sm_min is not None
    return NodeBuild(
        framework=option.framework,
        version=option.version,
        variant=option.variant,
        code=(*sorted(option.sm or (), key=capability_of), *sorted(option.ptx, key=capability_of)),
        ptx_driver_branch=late.matching_driver_branch if late is not None else None,
        minimum=next(iter(runs_on), f"{(option.sm_min or 0) / 10:.1f}") if is_counted else None,
        runs_on=runs_on,
        lacks=tuple(text for text, has_code in judged.items() if has_code is False),
    )


def _runs(option: Option, gpu: Gpu, cudnn: str | None, matrix: Matrix, *, can_compile: bool) -> bool | None:
    """Tell whether every part of an environment serves a GPU: the framework's code, its cuDNN, and both together."""
    bounds = cudnn_bounds(matrix, gpu, option.cuda_major) if cudnn is not None and "." in cudnn else ()
    named = {option.framework: option.version, "cuda": option.cuda or str(option.cuda_major)}
    pair = excluded_pair(matrix, named, gpu)
    is_excluded = pair is not None and pair.is_proved
    if is_excluded or any(str(cudnn) not in spec_of(bound.specifier) for bound in bounds):
        return False
    major, minor = gpu.compute_capability.split(".")
    has_code = has_code_for(option, (int(major), int(minor)), can_compile=can_compile)
    return None if has_code and pair is not None else has_code
