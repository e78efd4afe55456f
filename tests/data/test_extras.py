"""Every extra has an answer with every PyTorch: a stack, or a refusal that says why."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.resolve.request import parse_request
from provision.resolve.requirements import requirement_of
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack
from provision.versions import parse, spec_of

MATRIX = Matrix()
TORCHES = [row.version for row in MATRIX.torch_releases if parse(row.version) >= parse("2.3")]
PINNING = ("sglang", "vllm", "xformers")
"""Packages whose metadata names one PyTorch, or the first of its stable interface."""


def _lines(found: Stack) -> dict[str, str]:
    assert found.image is not None
    lines = (line for part in found.image.extras for line in part.requires)
    return {line.partition("==")[0].partition("[")[0]: line.partition("==")[2] for line in lines if "==" in line}


def test_at_least_forty_things_can_be_asked_for() -> None:
    assert len([row for row in MATRIX.extras if not row.refused]) >= 40


@pytest.mark.parametrize("extra", MATRIX.extras, ids=lambda row: row.id)
def test_every_extra_has_an_answer_alone_and_with_every_torch(extra) -> None:
    for torch in (None, *TORCHES):
        values = {"with": extra.id} | ({"torch": torch} if torch is not None else {})
        try:
            found = solve(parse_request(values), MATRIX)
        except UsageError as error:
            assert torch is None, torch
            assert not extra.frameworks
            assert "names no framework" in error.message
            continue
        if isinstance(found, Refusal):
            assert found.because, torch
            assert all(reason.because for reason in found.because)
            assert not extra.refused or extra.refused in found.because[0].because
        else:
            assert not extra.refused
            assert torch is None or found.frameworks["torch"] == torch


@pytest.mark.parametrize("package", PINNING)
def test_the_release_that_is_chosen_asks_for_this_torch_by_its_own_metadata(package: str) -> None:
    known = {row.version: row for row in MATRIX.companions if row.package == package}
    answered = 0
    for torch in TORCHES:
        found = solve(parse_request({"torch": torch, "with": package}), MATRIX)
        asking = [row for row in known.values() if row.requires.get("torch") == f"=={torch}"]
        if isinstance(found, Stack):
            row = known[_lines(found)[package]]
            assert torch in spec_of(row.requires["torch"]), torch
            assert all(parse(other.version) <= parse(row.version) for other in asking), torch
            answered += 1
        else:
            said = " ".join(reason.because for reason in found.because)
            assert not asking or "the index has no" in said, f"{torch} is pinned by {asking[0].version}"
    assert answered >= 5


@pytest.mark.parametrize(
    ("extra", "torch", "version"),
    [
        ("torchao", "2.9.1", "0.15.0"),
        ("torchao", "2.8.0", "0.14.0"),
        ("torchao", "2.6.0", "0.12.0"),
        ("torchcodec", "2.8.0", "0.7.0"),
        ("torchcodec", "2.5.1", "0.1.1"),
        ("torchcodec", "2.4.0", "0.0.3"),
        ("torchtext", "2.3.0", "0.18.0"),
        ("torch-tensorrt", "2.13.0", "2.13.0"),
        ("gptqmodel", "2.8.0", "7.6.0"),
        ("bitsandbytes", "2.3.1", "0.49.2"),
        ("unsloth", "2.15.0", None),
        ("torchtext", "2.4.0", None),
    ],
)
def test_what_the_metadata_leaves_open_is_paired_as_its_publisher_says(extra, torch, version) -> None:
    found = solve(parse_request({"torch": torch, "with": extra}), MATRIX)
    if version is None:
        assert isinstance(found, Refusal)
        assert extra == "torchtext" or not found.is_proved
    else:
        assert isinstance(found, Stack), found
        assert _lines(found)[extra] == version


def test_a_source_that_needs_a_torch_to_be_built_is_refused_with_the_nearest_torch_that_works() -> None:
    found = solve(parse_request({"torch": "2.3.0", "with": "gptqmodel"}), MATRIX)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert "torch 2.8" in {way.change for way in found.alternatives}
    beside = solve(parse_request({"torch": "2.8.0", "with": "gptqmodel"}), MATRIX)
    assert isinstance(beside, Stack), beside


def test_a_release_without_code_is_none_of_what_dali_may_be() -> None:
    found = solve(parse_request({"torch": "2.4.0", "python": "3.8", "with": "dali-cuda12"}), MATRIX)
    assert isinstance(found, Stack)
    assert found.image is not None
    (line,) = (line for part in found.image.extras for line in part.requires)
    admitted = spec_of(requirement_of(line).specifier)
    holding_code, empty = ("1.35.0", "1.53.0", "2.4.0"), ("1.36.0", "1.49.0", "1.51.2", "1.52.0")
    assert [version for version in (*holding_code, *empty) if version in admitted] == list(holding_code)


def test_a_release_of_cuml_without_wheels_is_none_that_is_taken() -> None:
    found = solve(parse_request({"torch": "2.8.0", "with": "cuml-cuda12"}), MATRIX)
    assert isinstance(found, Stack)
    assert found.image is not None
    (line,) = (line for part in found.image.extras for line in part.requires)
    assert [
        version for version in ("25.8.0", "25.10.0", "26.10.0") if version in spec_of(requirement_of(line).specifier)
    ] == [
        "25.10.0",
        "26.10.0",
    ]


@pytest.mark.parametrize(
    ("torch", "python", "extra", "way"),
    [("2.2.1", "3.9", "vllm", "torch 2.3"), ("1.13.0", "3.9", "deepspeed", "torch 2.0")],
)
def test_releases_that_cannot_run_beside_a_torch_are_no_pair_of_it(torch, python, extra, way) -> None:
    found = solve(parse_request({"torch": torch, "python": python, "with": extra}), MATRIX)
    assert isinstance(found, Refusal)
    assert way in {alternative.change for alternative in found.alternatives}


def test_a_pinning_extra_alone_takes_the_newest_torch_that_it_pins() -> None:
    for extra in ("sglang", "vllm"):
        pinned = {row.requires.get("torch", "").removeprefix("==") for row in MATRIX.companions if row.package == extra}
        found = solve(parse_request({"with": extra}), MATRIX)
        assert isinstance(found, Stack)
        newest = max((torch for torch in pinned if torch in TORCHES), key=parse)
        assert found.frameworks == {"torch": newest}


def test_a_prefix_takes_the_patch_that_an_extra_pins() -> None:
    pins = {row.requires.get("torch"): row for row in MATRIX.companions if row.package == "vllm"}
    newest = max((pin for pin in pins if pin and pin.startswith("==")), key=lambda pin: parse(pin.removeprefix("==")))
    minor = ".".join(newest.removeprefix("==").split(".")[:2])
    found = solve(parse_request({"torch": minor, "with": "vllm"}), MATRIX)
    assert isinstance(found, Stack)
    assert found.frameworks["torch"] == newest.removeprefix("==")


def test_what_is_refused_is_refused_with_its_own_reason_and_not_for_a_framework() -> None:
    found = solve(parse_request({"with": "mxnet"}), MATRIX)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert "it has ended" in found.because[0].because


def test_extras_of_one_package_for_different_cudas_are_offered_for_one_another_and_no_others() -> None:
    found = solve(parse_request({"torch": "2.8.0", "with": "transformer-engine-cuda13"}), MATRIX)
    assert isinstance(found, Refusal)
    assert "--with transformer-engine" in [item.change for item in found.alternatives]
    found = solve(parse_request({"torch": "2.8.0", "with": "torchtext"}), MATRIX)
    assert isinstance(found, Refusal)
    assert not any("--with" in item.change for item in found.alternatives), found.alternatives


def test_the_extras_of_a_line_stay_when_its_release_is_chosen() -> None:
    found = solve(parse_request({"torch": "2.14.1", "with": "sglang"}), MATRIX)
    assert isinstance(found, Stack)
    assert found.image is not None
    assert found.image.extras[0].requires[0].startswith("sglang[srt]==")


def test_what_is_compiled_may_have_another_name_than_the_extra() -> None:
    found = solve(parse_request({"torch": "2.13.0", "with": "mamba-ssm"}), MATRIX)
    assert isinstance(found, Stack)
    assert found.image is not None
    assert found.image.compiled == ("causal-conv1d", "mamba-ssm")


def test_no_release_without_a_wheel_for_the_machine_is_chosen() -> None:
    found = solve(parse_request({"torch": "2.8.0", "with": "xformers", "platform": "linux/arm64"}), MATRIX)
    assert isinstance(found, Refusal)


def test_an_older_deepspeed_is_given_a_torch_whose_headers_it_compiles() -> None:
    lines = ["deepspeed==0.16.5"]
    found = solve(parse_request({"torch": ">=2.10", "requirements": lines}), MATRIX)
    assert isinstance(found, Stack)
    assert found.frameworks["torch"].startswith("2.13")
    both = solve(parse_request({"requirements": ["deepspeed==0.16.5", "torch==2.14.0"], "torch": "2.14.0"}), MATRIX)
    assert isinstance(both, Stack)
    assert both.frameworks["torch"] == "2.14.0"
    (reason,) = [reason.because for reason in both.reasons if "deepspeed" in reason.because]
    assert "needs torch<2.14" in reason
    assert reason.endswith("; the torch of your lines is kept")
