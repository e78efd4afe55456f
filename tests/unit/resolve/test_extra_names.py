"""An extra is found under the names that people type, or the message says what it is called."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.matrix.query import called_extras, find_extra
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return Matrix()


@pytest.mark.parametrize(
    ("typed", "extra"),
    [
        ("flash_attn", "flash-attn"),
        ("Torch_Geometric", "torch-geometric"),
        ("cupy-cuda12x", "cupy-cuda12"),
        ("nvidia-dali-cuda120", "dali-cuda12"),
        ("faiss-gpu-cu12", "faiss"),
        ("flashinfer-python", "flashinfer"),
        ("open_clip_torch", "open-clip"),
        ("jupyterlab", "jupyter"),
        ("opencv-python-headless", "opencv"),
    ],
)
def test_the_name_of_its_distribution_is_as_good_as_its_own(facts: Matrix, typed: str, extra: str) -> None:
    found = solve(parse_request({"torch": "2.8", "with": typed}), facts)
    assert isinstance(found, Stack), found
    assert found.image is not None
    assert [row.id for row in found.image.extras] == [extra]
    alone = solve(parse_request({"torch": "2.8", "with": extra}), facts)
    assert isinstance(alone, Stack)
    assert found.packages == alone.packages


def test_one_thing_under_two_names_is_added_once(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.8", "with": "faiss,faiss-gpu-cu12"}), facts)
    assert isinstance(found, Stack)
    assert found.image is not None
    assert len(found.image.extras) == 1


@pytest.mark.parametrize(
    ("typed", "said", "hint"),
    [
        ("onnxruntime-gpu", "onnxruntime, onnxruntime-cuda11, onnxruntime-cuda12", "onnxruntime-cuda12"),
        ("nvidia-dali", "dali, dali-cuda11, dali-cuda12", "dali-cuda12"),
        ("faiss-gpu", "called faiss", "faiss"),
        ("transformer-engine-cu12", "called transformer-engine-cuda12", "transformer-engine-cuda12"),
        ("pytorch-lightning", "called lightning", "lightning"),
        ("sgl-kernel", "called sglang", "sglang"),
    ],
)
def test_a_name_that_means_another_distribution_is_told_and_not_swapped(
    facts: Matrix, typed: str, said: str, hint: str
) -> None:
    found = solve(parse_request({"torch": "2.8", "with": typed}), facts)
    assert isinstance(found, Refusal)
    assert said in found.because[0].because
    assert f"--with {hint}" in [alternative.change for alternative in found.alternatives]


@pytest.mark.parametrize("typed", ["paddlepaddle-gpu", "mxnet-cu112", "nvidia-apex"])
def test_what_is_refused_is_refused_under_its_other_names_too(facts: Matrix, typed: str) -> None:
    found = solve(parse_request({"torch": "2.8", "with": typed}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    row = find_extra(facts, typed)
    assert row is not None
    assert str(row.refused) in found.because[0].because


def test_no_other_name_is_the_name_of_an_extra(facts: Matrix) -> None:
    own = {row.id for row in facts.extras}
    for row in facts.extras:
        for name in row.names:
            assert name not in own
            assert row.refused is not None or row in called_extras(facts, name)
            # Otherwise the name would be taken for another extra on the quiet.
            assert find_extra(facts, name) in ((row,) if row.refused else (None,)), name


def test_what_is_no_name_at_all_is_said() -> None:
    with pytest.raises(UsageError, match="is not a name"):
        parse_request({"with": "!"})


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("vlm", "the nearest known name is vllm"),
        ("flash-atn", "flash-attn"),
        ("zzz", "known are accelerate, "),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(facts: Matrix, typed: str, said: str) -> None:
    found = solve(parse_request({"torch": "2.8", "with": typed}), facts)
    assert isinstance(found, Refusal)
    assert said in found.because[0].because


def test_what_has_ended_is_refused_with_its_successor(facts: Matrix) -> None:
    for typed in ("auto-gptq", "autogptq"):
        found = solve(parse_request({"with": typed}), facts)
        assert isinstance(found, Refusal)
        assert found.is_proved
        assert "gptqmodel" in found.because[0].because
        assert [way.flags for way in found.alternatives] == [("--with", "gptqmodel")]


@pytest.mark.parametrize("typed", ["apex", "pytorch3d", "mxnet", "paddlepaddle-gpu"])
def test_nothing_at_all_is_no_way_out(facts: Matrix, typed: str) -> None:
    found = solve(parse_request({"with": typed}), facts)
    assert isinstance(found, Refusal)
    assert not found.alternatives


@pytest.mark.parametrize(("typed", "major"), [("cupy", "13"), ("cudf-cuda12", "12"), ("dali-cuda11", "11")])
def test_what_is_for_a_cuda_stands_beside_that_alone(facts: Matrix, typed: str, major: str) -> None:
    found = solve(parse_request({"with": typed}), facts)
    assert isinstance(found, Stack), found
    assert not found.frameworks
    assert found.cuda.split(".")[0] == major
    assert found.python is not None
