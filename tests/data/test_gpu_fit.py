"""A stack fits a GPU only where every component of it does: held over every row and the GPUs that people have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from provision.assets import asset_dir
from provision.matrix.load import Matrix
from provision.matrix.model import Cudnn, Gpu
from provision.matrix.query import find_gpus, runs_on
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack
from provision.versions import parse

MATRIX = Matrix()
GPUS = (
    *("v100-sxm2-32gb", "p100-pcie-16gb", "t4", "a100-sxm4-80gb", "h100-sxm5-80gb"),
    *("b200", "b300", "gb300", "gb10", "rtx-5090"),
)
ROWS = {
    "torch": sorted({(row.torch, row.cuda) for row in MATRIX.torch_builds}, key=lambda row: tuple(map(parse, row))),
    "tensorflow": [(row.version, None) for row in MATRIX.tensorflow],
    "jax": [(row.version, row.variant.removeprefix("cuda")) for row in MATRIX.jax],
}


def number_of(gpu: Gpu) -> int:
    major, minor = gpu.compute_capability.split(".")
    return int(major) * 10 + int(minor)


def cudnn_rows() -> list[Cudnn]:
    return sorted(MATRIX.cudnn, key=lambda row: parse(row.version))


def is_cudnn_wrong(version: str, cuda_major: int, gpu: Gpu) -> bool:
    """Tell whether a row of cudnn.toml excludes a GPU, read straight from the rows and not as the resolver does."""
    have = parse(".".join(version.split(".")[:3]))
    floors = [row.sm_min for row in cudnn_rows() if row.sm_min is not None and parse(row.version) <= have]
    if floors and floors[-1] > number_of(gpu):
        return True
    ends = [row for row in cudnn_rows() if row.sm_max is not None and parse(row.last_version or row.version) >= have]
    if not ends or cuda_major in ends[0].forward_compatible_cuda:
        return False
    # Between two rows the end is open where the upper one serves the GPU.
    return (ends[0].sm_max or 0) // 10 < number_of(gpu) // 10


def faults(stack: Stack, gpu: Gpu) -> list[str]:
    """Return the components of a stack that do not serve a GPU."""
    found = []
    if stack.cudnn is not None and is_cudnn_wrong(stack.cudnn, int(stack.cuda.split(".")[0]), gpu):
        found.append(f"cuDNN {stack.cudnn}")
    if gpu.last_cuda is not None and parse(stack.cuda) > parse(gpu.last_cuda):
        found.append(f"CUDA {stack.cuda}")
    capability = divmod(number_of(gpu), 10)
    if stack.sm and runs_on(capability, stack.sm, stack.ptx) is None:
        found.append(f"code {stack.sm}")
    if "tensorflow" in stack.frameworks and capability >= (10, 0):
        found.append("TensorFlow on Blackwell")
    return found


@pytest.mark.parametrize("framework", ROWS)
@pytest.mark.parametrize("name", GPUS)
def test_no_stack_is_promised_to_a_gpu_that_one_of_its_components_excludes(
    framework: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What works instead of what is refused is looked for nine times as long as an answer, and not read here.
    monkeypatch.setattr("provision.resolve.solve.refuse", lambda *_: None)
    (gpu,) = find_gpus(MATRIX, name)
    wrong = []
    for version, cuda in ROWS[framework]:
        found = solve(parse_request({framework: version, "cuda": cuda, "gpu": name}), MATRIX)
        if isinstance(found, Stack):
            wrong += [(version, cuda, fault) for fault in faults(found, gpu)]
    assert not wrong


@pytest.mark.parametrize("name", ["v100-sxm2-32gb", "p100-pcie-16gb"])
@pytest.mark.parametrize("wish", [{"jax": "0.6.2", "cuda": "12"}, {"tensorflow": "2.20.0"}], ids=["jax", "tensorflow"])
def test_an_old_gpu_gets_the_newest_cudnn_that_serves_it(name: str, wish: dict[str, Any]) -> None:
    found = solve(parse_request({**wish, "gpu": name}), MATRIX)
    assert isinstance(found, Stack)
    last = max((row for row in cudnn_rows() if (row.sm_min or 99) < 75), key=lambda row: parse(row.version))
    assert found.cudnn is not None
    assert found.cudnn.startswith(f"{last.version}.")
    reasons = [reason for reason in found.reasons if reason.subject.startswith("gpu ")]
    assert any(fact.id.startswith("cudnn/") for reason in reasons for fact in reason.facts)


@pytest.mark.parametrize(
    ("wish", "gpu", "fact"),
    [
        ({"jax": "0.4.28", "cuda": "12"}, "b200", "cudnn/8.9.0"),
        ({"tensorflow": "2.10"}, "h100-sxm5-80gb", "cudnn/8.2.2"),
        ({"tensorflow": "2.20"}, "rtx-5090", "exclusion/tensorflow-sm120"),
        ({"tensorflow": "2.20"}, "gb300", "tensorflow/2.20.0"),
    ],
)
def test_refusal_names_the_component_and_its_fact(wish: dict[str, Any], gpu: str, fact: str) -> None:
    found = solve(parse_request({**wish, "gpu": gpu}), MATRIX)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert fact in [item.id for reason in found.because for item in reason.facts]
    for way in found.alternatives:
        flags = dict(zip(way.flags[::2], way.flags[1::2], strict=True))
        asked = parse_request({name.removeprefix("--"): value for name, value in flags.items()})
        assert isinstance(solve(asked, MATRIX), Stack)


@pytest.mark.parametrize(
    ("version", "gpu"), [("2.21", "rtx-5090"), ("2.20", "b200"), ("2.19", "b300"), ("2.18", "b200")]
)
def test_a_pair_that_no_report_decides_is_unknown(version: str, gpu: str, tmp_path: Path) -> None:
    found = solve(parse_request({"tensorflow": version, "gpu": gpu}), MATRIX)
    assert isinstance(found, Refusal)
    assert not found.is_proved
    assert "exclusion/tensorflow-blackwell" in [item.id for reason in found.because for item in reason.facts]
    assert isinstance(solve(parse_request({"tensorflow": version, "gpu": "h100-sxm5-80gb"}), MATRIX), Stack)
    data = tmp_path / "compat"
    shutil.copytree(asset_dir("compat"), data)
    path = data / "exceptions.toml"
    rows = path.read_text().split("\n\n")
    path.write_text("\n\n".join(row for row in rows if 'id = "tensorflow-' not in row))
    assert isinstance(solve(parse_request({"tensorflow": version, "gpu": gpu}), Matrix(data)), Stack)


@pytest.mark.parametrize(
    ("gpu", "torch", "is_warned"), [("gb10", "2.9", True), ("gb10", "2.10", False), ("b300", "2.8", True)]
)
def test_a_triton_without_the_code_of_a_gpu_is_a_warning_and_no_refusal(gpu: str, torch: str, is_warned: bool) -> None:
    found = solve(parse_request({"torch": torch, "gpu": gpu}), MATRIX)
    assert isinstance(found, Stack)
    assert any("ptxas inside Triton" in warning for warning in found.warnings) is is_warned


def test_a_gpu_too_old_for_triton_is_a_warning_and_no_refusal(tmp_path: Path) -> None:
    def warned(matrix: Matrix, gpu: str) -> bool:
        found = solve(parse_request({"torch": "2.6", "gpu": gpu}), matrix)
        assert isinstance(found, Stack)
        return any("Triton serves compute capability 7.0 and newer" in warning for warning in found.warnings)

    assert warned(MATRIX, "p100-pcie-16gb")
    assert warned(MATRIX, "gtx-1080-ti")
    assert not warned(MATRIX, "v100-sxm2-32gb")
    data = tmp_path / "compat"
    shutil.copytree(asset_dir("compat"), data)
    rows = (data / "exceptions.toml").read_text().split("\n\n")
    (data / "exceptions.toml").write_text("\n\n".join(row for row in rows if 'id = "triton-pascal"' not in row))
    assert not warned(Matrix(data), "p100-pcie-16gb")
