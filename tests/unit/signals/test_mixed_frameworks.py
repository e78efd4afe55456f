"""Where several frameworks share an environment, each is held to what it was itself built for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from provision.matrix.load import Matrix
from provision.probe.parse.frameworks import Framework
from provision.records import replace
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import FrameworkBuild, Stack
from provision.signals.cuda import cuda_cudnn
from provision.signals.expectation import Expectation, expect_stack, merge_expectation
from provision.signals.frameworks import fw_torch_arch, fw_torch_import


@pytest.fixture(scope="module")
def mixed() -> Stack:
    found = solve(parse_request({"torch": "2.7.1", "tensorflow": "2.20.0"}), Matrix())
    assert isinstance(found, Stack)
    return found


def _host(**torch: object) -> SimpleNamespace:
    said = {"name": "torch", "version": "2.7.1", "is_cuda_build": True, "cuda": "12.6", "device_count": 0, **torch}
    python = SimpleNamespace(packages={"nvidia-cudnn-cu12": "9.5.1.17"})
    return SimpleNamespace(torch=Framework(**said), libraries=[], python=python)


def test_a_mixed_stack_says_of_each_framework_what_it_was_built_for(mixed: Stack) -> None:
    torch, tensorflow = mixed.builds
    assert (torch.framework, torch.cuda, torch.cudnn, torch.nccl) == ("torch", "12.6", "9.5.1.17", "2.26.2")
    assert (tensorflow.framework, tensorflow.cuda, tensorflow.cudnn) == ("tensorflow", "12.5", "9")
    assert "sm_89" in tensorflow.sm
    assert "sm_89" not in torch.sm
    assert mixed.cudnn == mixed.packages["nvidia-cudnn-cu12"]


def test_the_lock_of_a_mixed_stack_is_read_back_whole(mixed: Stack) -> None:
    assert Stack.from_lock(mixed.to_lock()) == mixed


def test_a_lock_of_one_framework_says_it_once(mixed: Stack) -> None:
    one = solve(parse_request({"torch": "2.7.1"}), Matrix())
    assert isinstance(one, Stack)
    assert '"builds"' not in one.to_lock()
    (build,) = one.built_for
    assert (build.cuda, build.cudnn, build.sm) == (one.cuda, one.cudnn, one.sm)


def test_a_lock_of_several_frameworks_from_before_is_read_and_promises_nothing_apart(mixed: Stack) -> None:
    old = Stack.from_lock(replace(mixed, builds=()).to_lock())
    assert old.builds == old.built_for == ()
    assert expect_stack(old).build_of("torch").cuda == old.cuda


def test_torch_beside_tensorflow_needs_its_own_code_alone(mixed: Stack) -> None:
    expected = merge_expectation(expect_stack(mixed), {"gpus": 0}, "here")
    own = next(build for build in mixed.builds if build.framework == "torch")
    assert fw_torch_arch(_host(targets=own.sm), expected, Matrix()).status == "pass"
    assert fw_torch_arch(_host(targets=own.sm[:-1]), expected, Matrix()).status == "fail"


def test_the_cuda_of_torch_is_not_that_of_its_neighbour() -> None:
    builds = (FrameworkBuild(framework="tensorflow", cuda="12.5"), FrameworkBuild(framework="torch", cuda="12.6"))
    expected = Expectation(cuda="12.5", frameworks={"torch": "2.7.1"}, builds=builds)
    assert fw_torch_import(_host(), expected, Matrix()).status == "pass"
    assert fw_torch_import(_host(cuda="12.5"), expected, Matrix()).status == "fail"


def test_a_cudnn_inside_torch_is_not_the_one_beside_it() -> None:
    builds = (FrameworkBuild(framework="torch", cudnn="8.7.0.84"), FrameworkBuild(framework="jax", cudnn=">=9.1"))
    expected = Expectation(cudnn="9.5.1.17", builds=builds)
    assert cuda_cudnn(_host(cudnn="8.7.0"), expected, Matrix()).status == "pass"
    outcome = cuda_cudnn(_host(cudnn="9.5.1"), expected, Matrix())
    assert (outcome.status, outcome.expected) == ("fail", "cuDNN 8.7.0.84")


def test_what_a_person_expects_by_hand_holds_for_every_framework(mixed: Stack) -> None:
    expected = merge_expectation(expect_stack(mixed), {"cuda": "12.9"}, "here")
    assert {build.cuda for build in expected.builds} == {"12.9"}
    assert {build.sm for build in expected.builds} == {build.sm for build in mixed.builds}
