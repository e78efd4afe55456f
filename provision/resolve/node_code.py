"""Which GPUs the frameworks of a node were built for, so that a host can be refused before anything is installed."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import capability_of
from provision.resolve.node_job import PLATFORM
from provision.resolve.options import Option, has_code_for, late_compiler, offer
from provision.resolve.request import parse_request
from provision.resolve.stack import NodeBuild, Stack
from provision.versions import parse

__all__ = ["capabilities_by_architecture", "describe_builds", "node_gpus"]


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
    capabilities = sorted({gpu.compute_capability for gpu in node_gpus(matrix)}, key=parse)
    return tuple(
        _describe(option, driver, capabilities, matrix)
        for framework, version in found.frameworks.items()
        for option in offer(matrix, framework, parse_request({framework: version}), PLATFORM)
        if (option.version, option.variant) == (version, found.variants.get(framework))
    )


def _describe(option: Option, driver: str, capabilities: list[str], matrix: Matrix) -> NodeBuild:
    late = late_compiler(matrix, option, driver) if option.ptx else None
    judged = {
        text: has_code_for(option, (int(text.split(".")[0]), int(text.split(".")[1])), can_compile=late is None)
        for text in capabilities
    }
    is_counted = option.sm is None and option.sm_min is not None
    return NodeBuild(
        framework=option.framework,
        version=option.version,
        variant=option.variant,
        code=(*sorted(option.sm or (), key=capability_of), *sorted(option.ptx, key=capability_of)),
        ptx_driver_branch=late.matching_driver_branch if late is not None else None,
        minimum=f"{(option.sm_min or 0) / 10:.1f}" if is_counted else None,
        runs_on=tuple(text for text, has_code in judged.items() if has_code),
        lacks=tuple(text for text, has_code in judged.items() if has_code is False),
    )
