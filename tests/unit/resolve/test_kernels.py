"""A GPU is served by the code of every component: an extra without code for it comes in another release, or not."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from provision.assets import asset_dir
from provision.matrix.canonical import encode_toml
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus
from provision.resolve.kernels import find_left_out
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack

FAISS = {"torch": "2.8", "with": "faiss"}


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return Matrix()


@pytest.fixture
def edited(tmp_path: Path):
    """Facts of which the lists of one package's code are others, or none."""

    def edit(package: str, *targets: str, field: str = "sm") -> Matrix:
        data = shutil.copytree(asset_dir("compat"), tmp_path / "compat", dirs_exist_ok=True)
        document = tomllib.loads((data / "companions.toml").read_text())
        for row in document["release"]:
            if row["package"] == package:
                row.pop("sm", None)
                row.update({field: list(targets)} if targets else {})
        (data / "companions.toml").write_text(encode_toml("companions.toml", document))
        return Matrix(data)

    return edit


def requires(found: Stack | Refusal) -> list[str]:
    assert isinstance(found, Stack), found
    assert found.image is not None
    return [line for part in found.image.extras for line in part.requires]


def test_an_older_release_is_taken_where_the_newest_has_no_code_for_the_gpu(facts: Matrix) -> None:
    assert requires(solve(parse_request({**FAISS, "gpu": "a10"}), facts)) == ["faiss-gpu-cu12>=1.8"]
    (line,) = requires(solve(parse_request({**FAISS, "gpu": "h100"}), facts))
    version = line.removeprefix("faiss-gpu-cu12==")
    known = {row.version: row for row in facts.companions if row.package == "faiss-gpu-cu12"}
    assert "sm_90" in known[version].sm
    # One answer serves all that were asked for.
    assert requires(solve(parse_request({**FAISS, "gpu": "a10,h100"}), facts)) == [line]


def test_a_gpu_that_no_release_has_code_for_is_refused_with_the_list_that_says_so(facts: Matrix, edited) -> None:
    found = solve(parse_request({**FAISS, "gpu": "b200"}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    reason = next(item for item in found.because if "no release of faiss-gpu-cu12 has code for it" in item.because)
    assert "B200 (sm_100)" in reason.because
    assert any(fact.id.startswith("companion/faiss-gpu-cu12-") for fact in reason.facts)
    assert isinstance(solve(parse_request({**FAISS, "gpu": "b200"}), edited("faiss-gpu-cu12")), Stack)


@pytest.mark.parametrize(("sm", "is_served"), [("compute_80", True), ("compute_90a", False), ("sm_90a", False)])
def test_text_that_the_driver_can_compile_is_code_too(edited, sm: str, is_served: bool) -> None:
    found = solve(parse_request({**FAISS, "gpu": "b200"}), edited("faiss-gpu-cu12", sm))
    assert isinstance(found, Stack) == is_served


def test_a_list_of_one_machine_says_nothing_of_another(edited) -> None:
    wish = {"with": "vllm", "gpu": "gh200"}
    assert isinstance(solve(parse_request(wish), edited("vllm", "sm_80")), Stack)
    found = solve(parse_request(wish), edited("vllm", "sm_80", field="sm_aarch64"))
    assert isinstance(found, Refusal)


def test_what_an_extra_pins_is_held_to_the_gpu_through_to_the_last(facts: Matrix, edited) -> None:
    wish = {"torch": "2.13", "with": "cuml", "cuda": "13", "gpu": "h100"}
    assert requires(solve(parse_request(wish), facts)) == ["cuml-cu13>=25.10"]
    # cuml pins cudf, which pins libcudf.
    (line,) = requires(solve(parse_request(wish), edited("libcudf-cu13", "sm_75")))
    assert line.startswith("cuml-cu13==")
    found = solve(parse_request(wish), edited("libcuml-cu13", "sm_75"))
    assert isinstance(found, Refusal)
    reason = next(item for item in found.because if "no libcuml-cu13 of cuml-cu13 has code for it" in item.because)
    assert "cannot hold cuml-cuda13 on h100 (sm_90)" in reason.because
    assert any(fact.id.startswith("companion/libcuml-cu13-") for fact in reason.facts)


def _codeless(found: Stack | Refusal) -> list[str]:
    assert isinstance(found, Stack), found
    return [text for text in found.warnings if "has no code" in text]


def test_code_that_a_package_goes_on_without_keeps_no_gpu_out(edited) -> None:
    facts = edited("torchao", "sm_90a")
    wish = {"torch": "2.14", "with": "torchao", "gpu": "a100-sxm4-80gb"}
    (text,) = _codeless(solve(parse_request(wish), facts))
    assert text.startswith("torchao 0.18.0 has no code of its own for A100")
    assert not _codeless(solve(parse_request({**wish, "gpu": "h100"}), facts))


def test_a_wheel_that_has_none_for_its_machine_leaves_the_gpu_alone(facts: Matrix) -> None:
    wish = {"torch": "2.9", "with": "ctranslate2"}
    (text,) = _codeless(solve(parse_request({**wish, "gpu": "gh200"}), facts))
    assert "ctranslate2" in text
    assert "for aarch64 has no code for GPUs" in text
    assert not _codeless(solve(parse_request({**wish, "gpu": "h100"}), facts))


def test_what_is_paired_with_a_framework_is_held_to_the_gpu_as_well(edited) -> None:
    wish = {"torch": "2.14", "with": "vllm", "gpu": "h100"}
    assert isinstance(solve(parse_request(wish), edited("vllm", "sm_90a")), Stack)
    found = solve(parse_request(wish), edited("vllm", "sm_75", "sm_80"))
    assert isinstance(found, Refusal)
    assert any(
        "paired with no vllm for H100" in reason.because or "vllm for" in reason.because for reason in found.because
    )


def test_an_extra_that_no_build_makes_run_on_a_gpu_is_proved_impossible(facts: Matrix) -> None:
    found = solve(parse_request({"with": "vllm", "gpu": "p100"}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert found.conflict == ("--gpu p100", "--with vllm")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"with": "vllm", "gpu": "p100"}, "excludes gpu-architecture==Pascal"),
        ({"with": "bitsandbytes", "gpu": "k80"}, "excludes gpu-architecture==Kepler"),
        ({"with": "flashinfer", "gpu": "v100-pcie-16gb"}, "excludes gpu-architecture==Volta"),
        ({"torch": "2.9", "with": "triton", "gpu": "gb10"}, "knows no sm_121a"),
        ({"torch": "2.9", "with": "vllm", "gpu": "gb300"}, "knows no sm_103a"),
        ({"torch": "2.6", "with": "unsloth", "gpu": "p100"}, "Triton serves compute capability 7.0 and newer alone"),
    ],
)
def test_known_cases_are_refused_with_their_fact(facts: Matrix, wish: dict[str, str], said: str) -> None:
    found = solve(parse_request(wish), facts)
    assert isinstance(found, Refusal)
    reason = next(item for item in found.because if said in item.because)
    assert reason.facts


@pytest.mark.parametrize(
    ("torch", "gpu", "version"),
    [
        (None, "v100-pcie-16gb", "2.5.0"),
        (None, "p100", "2.2.0"),
        ("2.6", "t4", "2.6.1"),
        ("2.6", "v100-pcie-16gb", None),
    ],
)
def test_a_gpu_that_a_release_is_known_to_fail_on_leads_to_an_older_one(facts: Matrix, torch, gpu, version) -> None:
    # TensorRT 10.5, which Torch-TensorRT 2.6 requires, dropped Volta; TensorRT 10 what came before.
    wish = {"with": "torch-tensorrt", "gpu": gpu} | ({"torch": torch} if torch else {})
    found = solve(parse_request(wish), facts)
    if version is None:
        assert isinstance(found, Refusal)
        assert any("torch-tensorrt for Tesla V100" in reason.because for reason in found.because)
    else:
        assert isinstance(found, Stack)
        assert any(f"torch-tensorrt {version}" in reason.because for reason in found.reasons)


def test_all_gpus_that_a_release_is_known_to_fail_on_are_named(facts: Matrix) -> None:
    row = next(row for row in facts.companions if (row.package, row.version) == ("torch-tensorrt", "2.6.1"))
    gpus = tuple((name, find_gpus(facts, name)) for name in ("p100", "h100-pcie", "m60"))
    wish = SimpleNamespace(gpus=gpus, platform="linux/amd64")
    assert [text.rpartition(" ")[2] for text in find_left_out(facts, row, wish)] == ["(sm_60)", "(sm_52)"]


def test_faiss_of_its_own_authors_serves_gpus_that_the_other_does_not(facts: Matrix) -> None:
    wish = {"torch": "2.8", "gpu": "b200"}
    assert isinstance(solve(parse_request({**wish, "with": "faiss"}), facts), Refusal)
    assert requires(solve(parse_request({**wish, "with": "faiss-gpu"}), facts)) == ["faiss-gpu>=1.15"]


def test_the_triton_of_the_next_torch_serves_what_that_of_the_last_does_not(facts: Matrix) -> None:
    assert isinstance(solve(parse_request({"torch": "2.10", "with": "triton", "gpu": "gb10"}), facts), Stack)
    # PyTorch itself goes on without Triton, and warns.
    plain = solve(parse_request({"torch": "2.9", "gpu": "gb10"}), facts)
    assert isinstance(plain, Stack)
    assert any("sm_121a" in warning for warning in plain.warnings)


def test_a_release_that_its_code_keeps_from_a_python_is_not_chosen_there(facts: Matrix) -> None:
    lines = {
        python: requires(solve(parse_request({"torch": "2.1.2", "with": "deepspeed", "python": python}), facts))[0]
        for python in ("3.8", "3.11")
    }
    row = next(row for row in facts.constraints if row.id == "deepspeed-python-39")
    assert lines["3.8"] != lines["3.11"]
    assert row.versions.removeprefix(">=") > lines["3.8"].partition("==")[2]


def _unlisted(**values: str) -> list[str]:
    found = solve(parse_request({name.rstrip("_"): value for name, value in values.items()}), Matrix())
    assert isinstance(found, Stack), found
    return [text for text in found.warnings if "GPU fit" in text]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"torch": "2.6", "with_": "torch-tensorrt,tensorrt"}, "tensorrt-cu12 and torch-tensorrt 2.6.1 is unknown"),
        ({"torch": "2.8", "with_": "tensorrt"}, "tensorrt-cu12 is unknown"),
        ({"torch": "2.14", "with_": "torch-tensorrt"}, "torch-tensorrt 2.14.0 is unknown"),
    ],
)
def test_what_has_code_for_gpus_that_no_fact_lists_is_told_once(values: dict[str, str], said: str) -> None:
    (text,) = _unlisted(**values, gpu="h100")
    assert said in text
    assert not _unlisted(**values)


@pytest.mark.parametrize(
    "extra",
    [
        *("faiss", "bitsandbytes", "transformers", "cuda-python", "numba-cuda", "flash-attn", "ctranslate2", "cupy"),
        *("cudf", "cuml", "dali", "torchao", "torchcodec", "onnxruntime", "vllm"),
    ],
)
def test_what_is_listed_or_compiled_here_or_has_no_such_code_is_not(extra: str) -> None:
    assert not _unlisted(torch="2.8", gpu="h100", with_=extra)


def test_a_build_of_torch_whose_gpus_are_unknown_says_so_itself() -> None:
    assert ["torch 2.13.0+cu129" in text for text in _unlisted(torch="2.13", cuda="12.9")] == [True]
    assert not _unlisted(torch="2.13")
