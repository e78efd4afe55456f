"""An extra is found under the names that people type, or the message says what it is called."""

from __future__ import annotations

import itertools

import pytest

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import Extra
from provision.matrix.query import called_extras, find_extras
from provision.resolve.request import parse_request
from provision.resolve.rules import side_holds
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
        ("numba", "called numba-cuda", "numba-cuda"),
        ("faiss-gpu-cuvs", "called faiss", "faiss"),
        ("transformer-engine-cu12", "called transformer-engine", "transformer-engine"),
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
    (row,) = find_extras(facts, typed)
    assert str(row.refused) in found.because[0].because


def test_no_other_name_is_the_name_of_an_extra(facts: Matrix) -> None:
    own = {row.id for row in facts.extras}
    for row in facts.extras:
        for name in row.names:
            assert name not in own
            assert row.refused is not None or row in called_extras(facts, name)
            # Otherwise the name would be taken for another extra on the quiet.
            assert find_extras(facts, name) == ((row,) if row.refused else ()), name


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


@pytest.mark.parametrize(
    ("typed", "major"),
    [
        ("cupy", "13"),
        ("cudf-cuda12", "12"),
        ("dali-cuda11", "11"),
        ("onnxruntime-gpu", "13"),
        ("nvidia-dali,faiss", "12"),
    ],
)
def test_what_is_for_a_cuda_stands_beside_that_alone(facts: Matrix, typed: str, major: str) -> None:
    found = solve(parse_request({"with": typed}), facts)
    assert isinstance(found, Stack), found
    assert not found.frameworks
    assert found.cuda.split(".")[0] == major
    assert found.python is not None


def _chosen(facts: Matrix, **values: str) -> tuple[str, list[str]]:
    """Return the CUDA of an answer, and the extras that were taken."""
    found = solve(parse_request({name.rstrip("_"): value for name, value in values.items()}), facts)
    assert isinstance(found, Stack), found
    assert found.image is not None
    return found.cuda.split(".")[0], [row.id for row in found.image.extras]


@pytest.mark.parametrize(
    ("values", "cuda", "extras"),
    [
        ({"torch": "2.8", "gpu": "rtx-5090"}, "12", ["dali-cuda12", "tensorrt-cuda12", "torch-scatter"]),
        ({"torch": "2.15"}, "13", ["dali-cuda13", "tensorrt-cuda13", "torch-scatter"]),
        ({"torch": "2.14", "driver": "560"}, "12", ["dali-cuda12", "tensorrt-cuda12", "torch-scatter"]),
    ],
)
def test_each_extra_is_taken_for_the_cuda_of_the_stack(
    facts: Matrix, values: dict[str, str], cuda: str, extras: list[str]
) -> None:
    assert _chosen(facts, **values, with_="torch-scatter,tensorrt,nvidia-dali") == (cuda, extras)


def test_an_extra_for_one_cuda_alone_decides_for_the_others(facts: Matrix) -> None:
    assert _chosen(facts, torch="2.11", with_="cupy") == ("13", ["cupy-cuda13"])
    assert _chosen(facts, torch="2.11", with_="cupy,faiss") == ("12", ["cupy-cuda12", "faiss"])
    # ONNX Runtime for CUDA 12 needs a newer PyTorch, and for CUDA 11 there is one.
    assert _chosen(facts, torch="2.3", with_="cupy,onnxruntime") == ("11", ["cupy-cuda11", "onnxruntime-cuda11"])


@pytest.mark.parametrize(
    ("values", "tag"),
    [
        ({"torch": "2.1", "cuda": "11.8"}, "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"),
        ({"cuda": "11.8", "python": "3.10"}, "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"),
        ({"torch": "2.1", "cuda": "11.8", "flavor": "devel"}, "nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04"),
        ({"torch": "2.1", "cuda": "12.1"}, None),
    ],
)
def test_what_opens_the_cudnn_of_the_system_gets_an_image_with_it(
    facts: Matrix, values: dict[str, str], tag: str | None
) -> None:
    extra = "onnxruntime-gpu" if tag else "transformers"
    found = solve(parse_request({**values, "with": extra}), facts)
    assert isinstance(found, Stack), found
    assert found.image is not None
    assert (found.image.cuda_base.ref if found.image.cuda_base else None) == tag


@pytest.mark.parametrize(
    ("refused", "taken"),
    [({"tensorflow": "2.17"}, {"tensorflow": "2.18"}), ({"jax": "0.4.28"}, {"jax": "0.4.29"}), ({"torch": "2.3"}, {})],
)
def test_onnx_runtime_for_cuda_12_goes_with_cudnn_9_alone(
    facts: Matrix, refused: dict[str, str], taken: dict[str, str]
) -> None:
    cuda = {"cuda": "12.1"} if "torch" in refused else {}
    found = solve(parse_request({**refused, **cuda, "with": "onnxruntime-gpu"}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    if taken:
        assert _chosen(facts, **taken, with_="onnxruntime-gpu") == ("12", ["onnxruntime-cuda12"])


def test_the_build_of_torch_is_taken_whose_pins_an_extra_can_meet(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.7", "with": "cuml"}), facts)
    assert isinstance(found, Stack), found
    assert found.variants["torch"] == "cu128"
    refused = solve(parse_request({"torch": "2.7", "cuda": "12.6", "with": "cuml"}), facts)
    assert isinstance(refused, Refusal)
    assert "excludes torch for CUDA 12.6" in " ".join(reason.because for reason in refused.because)
    # Beside no PyTorch nothing pins the libraries of CUDA.
    assert isinstance(solve(parse_request({"cuda": "12.6", "python": "3.11", "with": "cuml"}), facts), Stack)


@pytest.mark.parametrize(
    ("gpu", "extra"), [("t4", "tensorrt-cuda12"), ("v100", "tensorrt-cuda12-volta"), ("p100", None)]
)
def test_tensorrt_is_taken_in_the_releases_that_have_the_gpu(facts: Matrix, gpu: str, extra: str | None) -> None:
    found = solve(parse_request({"torch": "2.6", "cuda": "12.4", "gpu": gpu, "with": "tensorrt"}), facts)
    assert isinstance(found, Refusal if extra is None else Stack), found
    if isinstance(found, Stack):
        assert found.image is not None
        assert [row.id for row in found.image.extras] == [extra]


@pytest.mark.parametrize("extra", ["ctranslate2", "cupy", "onnxruntime-gpu", "tensorrt"])
def test_what_is_for_cuda_alone_is_refused_without_it(facts: Matrix, extra: str) -> None:
    with pytest.raises(UsageError, match="names no framework"):
        solve(parse_request({"with": extra, "cpu": True}), facts)


@pytest.mark.parametrize(("line", "holds"), [("12.4.127", True), ("12.1.105", True), ("12.0.140", False)])
def test_a_library_that_the_users_lines_name_may_be_what_works_too(facts: Matrix, line: str, holds: bool) -> None:
    request = parse_request({"torch": "2.3.0", "requirements": [f"nvidia-nvjitlink-cu12=={line}"]})
    found = solve(request, facts)
    assert isinstance(found, Stack if holds else Refusal), found
    if isinstance(found, Stack):
        assert found.packages["nvidia-nvjitlink-cu12"] == line
    left = solve(parse_request({"torch": "2.3.0"}), facts)
    assert isinstance(left, Stack)
    assert left.packages["nvidia-nvjitlink-cu12"] == "12.1.105"


def test_a_release_whose_pin_left_the_index_is_not_promised(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.5", "with": "sglang"}), facts)
    assert isinstance(found, Refusal)
    assert "the index has no sgl-kernel==0.0.9.post2" in " ".join(reason.because for reason in found.because)
    assert _chosen(facts, torch="2.6", with_="sglang")[1] == ["sglang"]


@pytest.mark.parametrize("tensorflow", ["2.10", "2.12", "2.14", "2.17"])
def test_tensorflow_for_cudnn_8_stands_beside_no_pytorch_for_cudnn_9(facts: Matrix, tensorflow: str) -> None:
    found = solve(parse_request({"torch": "2.4", "tensorflow": tensorflow}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved


def test_a_gpu_that_one_build_serves_is_served(facts: Matrix) -> None:
    assert _chosen(facts, torch="2.6", gpu="v100", with_="cudf") == ("12", ["cudf-cuda12"])
    found = solve(parse_request({"torch": "2.6", "gpu": "gtx-1080-ti", "with": "cudf"}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert "excludes gpu-architecture==Pascal" in found.because[0].because


def test_what_no_build_is_for_is_refused_with_each(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "1.12.1+cu102", "with": "cupy"}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    excluded = {"cupy-cuda11": "cuda<11.2", "cupy-cuda12": "cuda<12", "cupy-cuda13": "cuda<13"}
    said = "; ".join(f"{name}, which excludes {conflict}" for name, conflict in excluded.items())
    assert f"cannot hold {said}" in found.because[0].because


def test_an_extra_that_lacks_its_framework_is_called_as_it_was_asked_for(facts: Matrix) -> None:
    for name in ("transformer-engine", "transformer-engine-cuda12"):
        found = solve(parse_request({"jax": "0.6", "with": name}), facts)
        assert isinstance(found, Refusal)
        assert f"lack torch, which `--with {name}` is for" in found.because[0].because


def test_an_extra_of_a_cuda_by_name_is_that_one_and_its_refusal_offers_the_others(facts: Matrix) -> None:
    assert _chosen(facts, torch="2.11", with_="cupy-cuda12") == ("12", ["cupy-cuda12"])
    found = solve(parse_request({"torch": "2.15", "with": "cupy-cuda12"}), facts)
    assert isinstance(found, Refusal)
    assert "--with cupy" in [alternative.change for alternative in found.alternatives]


def test_the_answer_says_which_build_was_taken(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.8", "with": "tensorrt,cupy-cuda12"}), facts)
    assert isinstance(found, Stack)
    said = {reason.subject: reason.because for reason in found.reasons}
    assert said["tensorrt"] == "tensorrt-cu12>=10 is its build for CUDA 12"
    assert "cupy" not in said


def test_rows_for_different_cudas_exclude_each_other_and_agree_in_the_rest(facts: Matrix) -> None:
    by_name: dict[str, list[Extra]] = {}
    for row in facts.extras:
        for name in row.by_cuda:
            by_name.setdefault(name, []).append(row)
    assert {"cupy", "tensorrt", "dali", "onnxruntime"} <= by_name.keys()
    for name, rows in by_name.items():
        assert name not in {row.id for row in facts.extras}
        assert len({(row.frameworks, row.needs_compiler, row.needs_nvcc, row.runs_nvcc) for row in rows}) == 1, name
        assert len({(row.compiles, row.apt, row.port, row.command) for row in rows}) == 1, name
        for cuda, architecture in itertools.product(("11.8", "12.8", "13.0"), {gpu.architecture for gpu in facts.gpus}):
            place = {"cuda": cuda, "gpu-architecture": architecture}
            fitting = [row for row in rows if not any(side_holds(text, place) for text in row.conflicts)]
            assert len(fitting) <= 1, (name, place)
