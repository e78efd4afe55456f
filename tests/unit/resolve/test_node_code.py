"""What a node's lock says of the GPUs that its frameworks were built for is what the solver says when it is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest

from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.node import solve_node
from provision.resolve.node_code import PLATFORM, _describe, capabilities_by_architecture, node_gpus
from provision.resolve.node_options import parse_node_options
from provision.resolve.options import offer
from provision.resolve.request import parse_request
from provision.resolve.stack import NodeBuild, Refusal, Stack


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


def solve(matrix: Matrix, os: str, **values: Any) -> Stack | Refusal:
    return solve_node(parse_request(values), parse_node_options({"os": [os], "include": ["none"]}), matrix)


def builds(matrix: Matrix, os: str, **values: Any) -> tuple[NodeBuild, ...]:
    found = solve(matrix, os, **values)
    assert isinstance(found, Stack), found.because
    assert found.node is not None
    (profile,) = found.node.profiles
    assert profile.frameworks is not None
    (environment,) = profile.frameworks.environments
    return environment.builds


def test_a_build_says_its_code_and_whom_it_serves(matrix: Matrix) -> None:
    (build,) = builds(matrix, "debian12", torch="2.14", driver="580")
    row = next(item for item in matrix.torch_builds if (item.torch, item.variant) == (build.version, build.variant))
    assert build.framework == "torch"
    assert build.code == row.sm
    assert "7.0" in build.lacks
    assert {"7.5", "8.0", "8.9", "10.3"} <= set(build.runs_on)
    assert build.ptx_driver_branch is None


@pytest.mark.parametrize(
    ("os", "wish"),
    [
        ("debian12", {"torch": "2.14", "driver": "580"}),
        ("debian12", {"torch": "2.1", "cuda": "12.1", "driver": "535"}),
        ("ubuntu22.04", {"tensorflow": "2.18", "driver": "535"}),
        ("ubuntu22.04", {"tensorflow": "2.18", "driver": "580"}),
        ("ubuntu24.04", {"jax": "0.6", "driver": "580"}),
    ],
)
def test_it_is_the_judgement_of_the_solver(matrix: Matrix, os: str, wish: dict[str, str]) -> None:
    (build,) = builds(matrix, os, **wish)
    kept = f"{build.version}+{build.variant}" if build.framework == "torch" else build.version
    known = {gpu.compute_capability for gpu in node_gpus(matrix)}
    assert set(build.runs_on) | set(build.lacks) <= known
    assert not set(build.runs_on) & set(build.lacks)
    assert bool(known - set(build.runs_on) - set(build.lacks)) is ("tensorflow" in wish and wish["driver"] == "580")
    for capability in known:
        found = solve(matrix, os, **{**wish, build.framework: kept, "gpu": capability})
        if capability in build.runs_on:
            # That a driver does not know the GPU, or not any more, is another matter than code.
            said = "" if isinstance(found, Stack) else " ".join(reason.because for reason in found.because)
            assert not re.search("code for|only through|needs compute", said)
        elif capability not in build.lacks:
            assert not isinstance(found, Stack)
        elif isinstance(found, Stack):
            # Whoever asks for the GPU gets an older cuDNN, where the framework admits one that serves it.
            (asked,) = builds(matrix, os, **{**wish, build.framework: kept, "gpu": capability})
            assert capability in asked.runs_on
            assert asked.code == build.code


def test_ptx_counts_only_where_the_driver_compiles_it(matrix: Matrix) -> None:
    (old,) = builds(matrix, "ubuntu22.04", tensorflow="2.18", driver="535")
    (new,) = builds(matrix, "ubuntu22.04", tensorflow="2.18", driver="580")
    assert old.code == new.code
    assert any(target.startswith("compute_") for target in old.code)
    assert "9.0" in old.lacks
    assert "9.0" in new.runs_on
    assert old.ptx_driver_branch is not None
    assert 535 < old.ptx_driver_branch <= 580
    assert new.ptx_driver_branch is None


def test_a_build_without_a_list_says_its_minimum(matrix: Matrix) -> None:
    option = next(item for item in offer(matrix, "jax", parse_request({"jax": "0.6"}), PLATFORM) if item.is_known)
    build = _describe(replace(option, sm=None, ptx=()), "580", tuple(node_gpus(matrix)), None, matrix)
    assert build.code == ()
    assert build.minimum is not None
    assert build.minimum in build.runs_on
    assert "3.7" in build.lacks


def test_gpus_with_a_processor_of_another_kind_are_no_nodes(matrix: Matrix) -> None:
    found = capabilities_by_architecture(matrix)
    assert found["Volta"] == ["7.0"]
    assert found["Ampere"] == ["8.0", "8.6"]
    assert "gb200" not in {gpu.id for gpu in node_gpus(matrix)}
    assert list(found) == sorted(found, key=lambda name: [int(part) for part in found[name][0].split(".")])


def test_the_builds_are_part_of_the_lock_and_read_back(matrix: Matrix) -> None:
    found = solve(matrix, "debian12", torch="2.14", driver="580")
    assert isinstance(found, Stack)
    assert Stack.from_lock(found.to_lock()) == found
    assert '"runs_on"' in found.to_lock()
