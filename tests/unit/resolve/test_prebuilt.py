"""Which wheels of a project's own releases go with a build of PyTorch."""

from __future__ import annotations

import pytest

from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.prebuilt import offered_wheels, possible_wheels, prebuilt_wheels, published_wheels
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return Matrix()


def _build(facts: Matrix, torch: str, cuda: str):
    return next(row for row in facts.torch_builds_of({torch}) if row.cuda == cuda)


def test_the_address_has_the_abi_and_the_cuda_of_the_build(facts: Matrix) -> None:
    old = dict(prebuilt_wheels(facts, "flash-attn", _build(facts, "2.5.1", "12.4"), "3.11", "x86_64"))
    assert old["2.8.3"].endswith("/v2.8.3/flash_attn-2.8.3+cu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl")
    new = dict(prebuilt_wheels(facts, "flash-attn", _build(facts, "2.8.0", "12.8"), "3.12", "x86_64"))
    assert new["2.8.3"].endswith("+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl")
    assert "2.8.2" not in new
    assert list(old) == sorted(
        old, key=lambda version: [*map(int, version.replace("post", "").split("."))], reverse=True
    )


def test_early_releases_name_the_minor_of_cuda(facts: Matrix) -> None:
    found = dict(prebuilt_wheels(facts, "flash-attn", _build(facts, "2.3.1", "12.1"), "3.10", "x86_64"))
    assert "+cu123torch2.3cxx11abiFALSE-cp310" in found["2.6.3"]


@pytest.mark.parametrize(
    ("torch", "cuda", "python", "machine"),
    [
        ("2.8.0", "12.8", "3.14", "x86_64"),
        ("2.7.1", "12.8", "3.12", "aarch64"),
        ("2.9.1", "13.0", "3.11", "x86_64"),
        ("2.10.0", "13.0", "3.12", "x86_64"),
        ("2.4.0", "12.4", "3.13", "x86_64"),
    ],
)
def test_what_was_not_published_is_not_named(facts: Matrix, torch: str, cuda: str, python: str, machine: str) -> None:
    assert prebuilt_wheels(facts, "flash-attn", _build(facts, torch, cuda), python, machine) == ()


def test_a_newer_torch_may_have_a_wheel_that_no_fact_names(facts: Matrix) -> None:
    guessed = prebuilt_wheels(facts, "flash-attn", _build(facts, "2.11.0", "13.0"), "3.12", "x86_64", is_known=False)
    assert dict(guessed)["2.8.3"].endswith(
        "/v2.8.3/flash_attn-2.8.3+cu13torch2.11cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    )
    other = prebuilt_wheels(facts, "flash-attn", _build(facts, "2.11.0", "13.0"), "3.12", "aarch64", is_known=False)
    assert [version for version, _ in other] == ["2.8.3", "2.8.1"], "of these alone there are wheels for arm64"
    known = prebuilt_wheels(facts, "flash-attn", _build(facts, "2.4.0", "12.4"), "3.13", "x86_64", is_known=False)
    assert known == (), "what came before the newest torch with wheels was left out on purpose"


def test_few_releases_are_tried_and_none_is_named_before_it_was(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.11.0", "python": "3.12", "with": "flash-attn"}), facts, is_image=True)
    assert isinstance(found, Stack)
    tried = possible_wheels(found, facts)
    assert [version for _, version, _ in tried] == ["2.8.3.post1", "2.8.3", "2.8.2", "2.8.1", "2.8.0.post2"]
    assert published_wheels(found, facts) == ()
    assert not any("publishes" in text for text in found.warnings)


def test_a_wheel_that_came_later_is_named_with_the_hash_that_others_lock_it_by(facts: Matrix) -> None:
    wish = {"torch": "2.9.1", "cuda": "12.8", "python": "3.12", "with": "flash-attn"}
    found = solve(parse_request(wish), facts, is_image=True)
    assert isinstance(found, Stack)
    ((_, version, address),) = published_wheels(found, facts)
    assert version == "2.8.3"
    assert any(f"`flash-attn @ {address}#sha256=4e2f9e39" in text for text in found.warnings)
    other = solve(parse_request(wish | {"python": "3.11"}), facts, is_image=True)
    assert isinstance(other, Stack)
    assert published_wheels(other, facts) == ()
    assert other.image is not None
    assert other.image.compiled == ("flash-attn",)


@pytest.mark.parametrize(
    ("package", "torch", "cuda", "python", "machine", "version", "file"),
    [
        ("mamba-ssm", "2.10.0", "13.0", "3.12", "x86_64", "2.3.2.post1", "+cu13torch2.10cxx11abiTRUE-cp312"),
        ("mamba-ssm", "2.10.0", "13.0", "3.12", "aarch64", "2.3.2.post1", "cp312-linux_aarch64.whl"),
        ("mamba-ssm", "2.3.1", "12.1", "3.10", "x86_64", "2.2.4", "+cu12torch2.3cxx11abiFALSE-cp310"),
        ("mamba-ssm", "2.6.0", "11.8", "3.11", "x86_64", "2.3.2.post1", "+cu11torch2.6cxx11abiFALSE-cp311"),
        ("mamba-ssm", "2.0.1", "11.7", "3.9", "x86_64", "2.2.2", "+cu118torch2.0cxx11abiFALSE-cp39"),
        ("causal-conv1d", "2.8.0", "12.8", "3.13", "x86_64", "1.7.0", "+cu12torch2.8cxx11abiTRUE-cp313"),
        ("causal-conv1d", "2.7.1", "12.6", "3.9", "x86_64", "1.5.3.post1", "/v1.5.3.post2/causal_conv1d-1.5.3.post1+"),
    ],
)
def test_mamba_and_its_kind_publish_wheels_too(
    facts: Matrix, package: str, torch: str, cuda: str, python: str, machine: str, version: str, file: str
) -> None:
    found = prebuilt_wheels(facts, package, _build(facts, torch, cuda), python, machine)
    assert found[0][0] == version
    assert file in found[0][1]


def test_wheels_that_were_built_before_their_torch_was_released_are_not_taken(facts: Matrix) -> None:
    for is_known in (True, False):
        found = prebuilt_wheels(facts, "mamba-ssm", _build(facts, "2.6.0", "12.4"), "3.12", "x86_64", is_known=is_known)
        assert "2.2.4" not in dict(found)


def test_a_stack_takes_the_wheels_of_mamba_and_of_what_it_needs(facts: Matrix) -> None:
    wish = {"torch": "2.8.0", "cuda": "12.8", "python": "3.12", "with": "mamba-ssm", "gpu": "v100"}
    found = solve(parse_request(wish), facts, is_image=True)
    assert isinstance(found, Stack)
    named = {name: version for name, version, _ in published_wheels(found, facts)}
    assert named == {"causal-conv1d": "1.6.1", "mamba-ssm": "2.3.1"}, "what came after has no code for a V100"
    assert not any("sm_70 alone" in text for reason in found.reasons for text in (reason.because,))


def test_what_is_compiled_with_another_language_than_the_headers_ask_for_is_refused(facts: Matrix) -> None:
    for name in ("flash-attn", "mamba-ssm"):
        refused = solve(parse_request({"torch": "2.14", "with": name}), facts, is_image=True)
        assert isinstance(refused, Refusal)
        found = solve(parse_request({"with": name}), facts, is_image=True)
        assert isinstance(found, Stack)
        assert found.frameworks["torch"].startswith("2.13")
    assert isinstance(solve(parse_request({"torch": "2.14", "with": "causal-conv1d"}), facts, is_image=True), Stack)


def test_an_older_wheel_is_tried_where_the_address_of_the_newest_does_not_answer(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.8.0", "python": "3.12", "with": "flash-attn"}), facts, is_image=True)
    assert isinstance(found, Stack)
    assert [version for _, version, _ in offered_wheels(found, facts)][:2] == ["2.8.3.post1", "2.8.3"]


def test_a_wheel_for_one_build_alone_is_named_for_that_build(facts: Matrix) -> None:
    ((version, address),) = prebuilt_wheels(facts, "torch-scatter", _build(facts, "2.4.1", "12.1"), "3.11", "x86_64")
    assert version == "2.1.2"
    assert address.endswith("/torch-2.4.0%2Bcu121/torch_scatter-2.1.2%2Bpt24cu121-cp311-cp311-linux_x86_64.whl")
    assert prebuilt_wheels(facts, "torch-scatter", _build(facts, "2.6.0", "12.4"), "3.13", "x86_64")
    assert prebuilt_wheels(facts, "torch-sparse", _build(facts, "2.8.0", "12.8"), "3.13", "x86_64") == ()


def test_a_package_without_such_wheels_has_none(facts: Matrix) -> None:
    assert prebuilt_wheels(facts, "timm", _build(facts, "2.8.0", "12.8"), "3.12", "x86_64") == ()


def test_a_stack_that_compiles_names_the_wheel_that_its_project_publishes(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.8.0", "cuda": "12.8", "python": "3.12", "with": "flash-attn"}), facts)
    assert isinstance(found, Stack)
    ((version, address), *_) = prebuilt_wheels(facts, "flash-attn", _build(facts, "2.8.0", "12.8"), "3.12", "x86_64")
    (warning,) = [text for text in found.warnings if "flash-attn" in text]
    assert f"`flash-attn @ {address}`" in warning
    assert version in warning


@pytest.mark.parametrize("more", [{"torch": "2.14"}, {"python": "3.13", "torch": "2.2"}, {"platform": "linux/arm64"}])
def test_where_no_wheel_fits_none_is_named(facts: Matrix, more: dict[str, str]) -> None:
    found = solve(parse_request({"torch": "2.8.0", "with": "flash-attn"} | more), facts)
    assert not isinstance(found, Stack) or not any("publishes" in text for text in found.warnings)


def test_a_line_that_is_a_wheel_is_not_compiled_and_its_source_is(facts: Matrix) -> None:
    for file, compiled in (
        ("flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl#sha256=00", ()),
        ("f.tar.gz", ("flash-attn",)),
    ):
        line = f"flash-attn @ https://mirror.example/{file}"
        found = solve(parse_request({"torch": "2.8.0", "python": "3.12", "requirements": [line]}), facts)
        assert isinstance(found, Stack)
        assert found.image is not None
        assert found.image.compiled == compiled
        assert (found.image.compile_base is not None) == bool(compiled)
        assert not any("publishes" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("tag", "python"), [("cp312-cp312-linux_x86_64", "3.12"), ("cp313-none-any", "3.13"), ("py3-none-any", "3.11")]
)
def test_a_wheel_from_an_address_chooses_the_python_it_was_built_for(facts: Matrix, tag: str, python: str) -> None:
    lines = (f"demo @ https://mirror.example/demo-1.0-{tag}.whl",)
    found = solve(replace(parse_request({"torch": "2.8.0"}), requirements=lines), facts, is_image=True)
    assert isinstance(found, Stack)
    assert found.python == python


def test_a_wheel_from_an_address_for_another_machine_is_refused(facts: Matrix) -> None:
    lines = ("demo @ https://mirror.example/demo-1.0-cp312-cp312-linux_aarch64.whl",)
    found = solve(replace(parse_request({"torch": "2.8.0"}), requirements=lines), facts, is_image=True)
    assert isinstance(found, Refusal)
    assert any("demo-1.0-cp312-cp312-linux_aarch64.whl" in reason.because for reason in found.because)
    other = replace(parse_request({"torch": "2.8.0", "platform": "linux/arm64"}), requirements=lines)
    assert isinstance(solve(other, facts, is_image=True), Stack)
