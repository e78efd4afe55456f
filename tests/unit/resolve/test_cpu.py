"""Stacks without CUDA: which builds they take, what is not in them, and what contradicts them."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.resolve.request import parse_request, plain_request, to_flags
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack


@pytest.fixture(scope="module")
def facts() -> Matrix:
    """The shipped facts."""
    return Matrix()


_OURS = ("nvidia-", "cuda-", "triton", "jax-cuda")


def _stack(matrix: Matrix, **values: object) -> Stack:
    found = solve(parse_request(values), matrix)
    assert isinstance(found, Stack), found
    return found


@pytest.mark.parametrize(
    ("framework", "version", "installed"),
    [
        ("torch", "2.6", {"torch": "2.6.0+cpu", "torchvision": "0.21.0+cpu", "torchaudio": "2.6.0+cpu"}),
        ("jax", "0.6", {"jax": "0.6.2", "jaxlib": "0.6.2"}),
        ("jax", "0.4.24", {"jax": "0.4.24", "jaxlib": "0.4.24"}),
        ("tensorflow", "2.19", {"tensorflow": "2.19.1"}),
    ],
)
def test_nothing_of_cuda_is_in_it(facts: Matrix, framework: str, version: str, installed: dict[str, str]) -> None:
    stack = _stack(facts, **{framework: version, "cpu": True})
    assert installed.items() <= stack.packages.items()
    assert not [name for name in stack.packages if name.startswith(_OURS)]
    assert (stack.cuda, stack.cudnn, stack.nccl, stack.driver.minimum, stack.sm) == ("", None, None, "", ())
    assert stack.name.startswith(f"{framework}{stack.frameworks[framework]}-cpu-py")
    assert stack.image is not None
    assert "slim" in stack.image.base.ref
    assert stack.image.cuda_base is None
    again = Stack.from_lock(stack.to_lock())
    assert again == stack
    assert again.request == parse_request({framework: version, "cpu": True})


def test_torch_comes_from_its_index_without_a_known_hash(facts: Matrix) -> None:
    stack = _stack(facts, torch="2.6", cpu=True)
    assert stack.image is not None
    (torch,) = (package for package in stack.image.packages if package.name == "torch")
    assert (torch.index, torch.sha256) == ("pytorch", None)
    assert torch.index_url == "https://download.pytorch.org/whl/cpu"
    assert stack.unverified == 3


def test_on_arm_the_wheel_of_the_package_index_is_without_cuda(facts: Matrix) -> None:
    stack = _stack(facts, torch="2.4.1", cpu=True, platform="linux/arm64")
    assert stack.packages["torch"] == "2.4.1"
    assert stack.unverified == 0


def test_several_frameworks_share_one_environment(facts: Matrix) -> None:
    stack = _stack(facts, torch="2.6", jax="0.5", cpu=True)
    assert [build.cuda for build in stack.built_for] == [None, None]


def test_the_local_part_asks_for_it_too(facts: Matrix) -> None:
    assert parse_request({"torch": "2.4.1+cpu"}) == parse_request({"torch": "2.4.1", "cpu": True})
    stack = _stack(facts, torch="2.4.1+cpu", requirements=["torch==2.4.1+cpu"])
    assert stack.packages["torch"] == "2.4.1+cpu"


def test_a_request_without_it_does_not_speak_of_it() -> None:
    assert "is_cpu" not in plain_request(parse_request({"torch": "2.6"}))
    assert to_flags(parse_request({"torch": "2.6", "cpu": True})) == ("--torch", "2.6", "--cpu")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gpu": "h100"}, "--gpu h100"),
        ({"cuda": "12.1"}, "--cuda 12.1"),
        ({"driver": "535"}, "--driver 535"),
        ({"flavor": "devel"}, "--flavor devel"),
        ({"container-toolkit": "1.17.0"}, "--container-toolkit 1.17.0"),
        ({"torch": "2.6.0+cu124"}, "--torch 2.6.0+cu124"),
    ],
)
def test_what_only_a_gpu_has_contradicts_it(values: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_request({"torch": "2.6", "cpu": True, **values})
    assert f"`{said}` contradict" in caught.value.message


def test_an_extra_that_nvcc_compiles_is_refused(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.6", "cpu": True, "with": "flash-attn"}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert "compiled with nvcc" in found.because[0].because


def test_the_build_of_torch_rests_on_a_fact(facts: Matrix, tmp_path: Path) -> None:
    shutil.copytree(asset_dir("compat"), tmp_path / "compat")
    file = tmp_path / "compat/frameworks/torch.toml"
    rows = file.read_text()
    start = rows.index('[[setting]]\nid = "cpu_builds"')
    file.write_text(rows[:start] + rows[rows.index("[[setting]]", start + 1) :])
    tomllib.loads(file.read_text())
    found = solve(parse_request({"torch": "2.6", "cpu": True}), Matrix(tmp_path / "compat"))
    assert isinstance(found, Refusal)
    assert not found.is_proved
    stack = _stack(facts, torch="2.6", cpu=True)
    assert any(fact.id == "torch/cpu_builds" for reason in stack.reasons for fact in reason.facts)
