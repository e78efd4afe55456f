"""An extra that is built against PyTorch comes in the release that goes with it, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.resolve.environment import Demand
from provision.resolve.named import implied_frameworks
from provision.resolve.pairs import pair_demands
from provision.resolve.request import Request, parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack
from provision.versions import parse, spec_of


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return Matrix()


def _lines(facts: Matrix, **values: object) -> dict[str, str]:
    found = solve(parse_request(values), facts)
    assert isinstance(found, Stack), found
    assert found.image is not None
    return {line.partition("==")[0]: line for part in found.image.extras for line in part.requires}


def _pinned(facts: Matrix, package: str) -> dict[str, str]:
    """Return torch → the newest release of a package whose metadata pins it."""
    newest: dict[str, str] = {}
    for row in facts.companions:
        need = row.requires.get("torch", "") if row.package == package else ""
        if need.startswith("=="):
            torch = need.removeprefix("==")
            newest[torch] = max(newest.get(torch, row.version), row.version, key=parse)
    return newest


def test_every_torch_gets_the_vllm_that_pins_it(facts: Matrix) -> None:
    pairs = _pinned(facts, "vllm")
    assert pairs
    for torch, vllm in pairs.items():
        found = solve(parse_request({"torch": torch, "with": "vllm"}), facts)
        if isinstance(found, Refusal):
            assert not found.is_proved
            continue
        assert found.image is not None
        assert found.image.extras[0].requires == (f"vllm=={vllm}",), torch


def test_torch_without_a_known_vllm_is_refused_as_unknown_with_the_nearest_that_works(facts: Matrix) -> None:
    for version in {row.version for row in facts.torch_releases} - set(_pinned(facts, "vllm")):
        found = solve(parse_request({"torch": version, "with": "vllm"}), facts)
        assert isinstance(found, Refusal), version
        assert not found.is_proved
        assert any("without vllm" in item.change or "torch" in item.change for item in found.alternatives)


def test_vllm_alone_takes_the_newest_torch_that_is_paired_with_it(facts: Matrix) -> None:
    newest = max(_pinned(facts, "vllm"), key=parse)
    found = solve(parse_request({"with": "vllm"}), facts)
    assert isinstance(found, Stack)
    assert found.frameworks == {"torch": newest}
    assert found.request == Request(extras=("vllm",))


def test_an_extra_alone_takes_a_framework_it_is_for(facts: Matrix) -> None:
    found = solve(parse_request({"with": "huggingface", "python": "3.12"}), facts)
    assert isinstance(found, Stack)
    assert "torch" in found.frameworks


@pytest.mark.parametrize(
    ("line", "torch"),
    [
        ("vllm==0.6.3", "2.4.0"),
        ("xformers==0.0.28", "2.4.1"),
        ("torchvision==0.19.0", "2.4.0"),
        ("torchvision==0.19.0+cu118", "2.4.0"),
    ],
)
def test_a_package_of_the_user_alone_takes_the_torch_that_goes_with_it(facts: Matrix, line: str, torch: str) -> None:
    for more in ({}, {"python": "3.11"}):
        found = solve(parse_request({"requirements": [line], **more}), facts)
        assert isinstance(found, Stack)
        assert found.frameworks == {"torch": torch}


def test_a_package_that_does_not_count_here_implies_nothing(facts: Matrix) -> None:
    with pytest.raises(UsageError, match="names no framework"):
        solve(parse_request({"requirements": ["vllm==0.6.3; sys_platform == 'win32'"]}), facts)


def test_what_a_package_cannot_be_without_is_read_from_the_facts(facts: Matrix, tmp_path: Path) -> None:
    assert implied_frameworks(facts, ["einops", "jupyter"]) == ()
    assert implied_frameworks(facts, ["vllm", "torchaudio"]) == ("torch",)
    assert implied_frameworks(facts, ["xformers", "horovod"]) == ("torch",)
    data = shutil.copytree(asset_dir("compat"), tmp_path / "compat")
    for name in ("companions.toml", "extras.toml"):
        blocks = (data / name).read_text().split("\n\n")
        (data / name).write_text("\n\n".join(block for block in blocks if '"sglang' not in block))
    assert implied_frameworks(facts, ["sglang"]) == ("torch",)
    assert implied_frameworks(Matrix(data), ["sglang"]) == ()


def test_a_torchvision_of_another_torch_is_refused(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.5", "requirements": ["torchvision==0.19.0"]}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert "torchvision 0.19.0 of the requirements, which needs torch==2.4.0" in found.because[0].because
    fitting = solve(parse_request({"torch": "2.5", "requirements": ["torchvision>=0.19,<0.21"]}), facts)
    assert isinstance(fitting, Stack)
    # A release that the facts do not list is the user's own choice.
    assert isinstance(solve(parse_request({"torch": "2.5", "requirements": ["torchvision==0.19.77"]}), facts), Stack)


def test_xformers_comes_in_the_release_that_vllm_pins(facts: Matrix) -> None:
    lines = _lines(facts, **{"torch": "2.6.0", "with": "vllm,xformers"})
    row = next(row for row in facts.companions if (row.package, f"vllm=={row.version}") == ("vllm", lines["vllm"]))
    assert lines["xformers"] == f"xformers{row.requires['xformers']}"
    alone = _lines(facts, **{"torch": "2.6.0", "with": "xformers"})
    assert parse(alone["xformers"].partition("==")[2]) > parse(lines["xformers"].partition("==")[2])


def test_a_range_counts_where_it_is_known_what_a_release_was_built_with_and_the_cuda_is_its_own(facts: Matrix) -> None:
    ranged = next(row for row in facts.companions if row.package == "xformers" and row.built_with)
    assert ranged.requires["torch"].startswith(">=")
    majors = {
        row.torch: {build.cuda.partition(".")[0] for build in facts.torch_builds_of({row.torch})}
        for row in facts.torch_builds
    }
    major = str(ranged.cuda).partition(".")[0]
    newest = next(torch for torch in majors if torch in spec_of(ranged.requires["torch"]))
    paired = next(torch for torch in majors if torch in spec_of(ranged.requires["torch"]) and major in majors[torch])
    assert _lines(facts, **{"torch": paired, "with": "xformers"})["xformers"] == f"xformers=={ranged.version}"
    if major not in majors[newest]:
        assert isinstance(solve(parse_request({"torch": newest, "with": "xformers"}), facts), Refusal)


def test_a_build_for_another_cuda_than_the_packages_own_is_not_paired(facts: Matrix) -> None:
    assert _lines(facts, **{"torch": "2.6.0", "cuda": "12.6", "with": "vllm"})
    assert isinstance(solve(parse_request({"torch": "2.6.0", "cuda": "11.8", "with": "vllm"}), facts), Refusal)


def test_the_users_own_line_narrows_the_release(facts: Matrix) -> None:
    values = {"torch": "2.6.0", "with": "vllm", "requirements": ["vllm<0.8.5"]}
    chosen = parse(_lines(facts, **values)["vllm"].partition("==")[2])
    assert chosen < parse(_lines(facts, torch="2.6.0", **{"with": "vllm"})["vllm"].partition("==")[2])
    assert chosen < parse("0.8.5")


def test_a_line_that_does_not_count_here_binds_no_release(facts: Matrix) -> None:
    values = {"torch": "2.6.0", "with": "vllm"}
    plain = _lines(facts, **values)["vllm"]
    for marker in ("sys_platform == 'darwin'", "python_version < '3.0'", "platform_machine == 'aarch64'"):
        assert _lines(facts, **values, requirements=[f"vllm<0.8.5; {marker}"])["vllm"] == plain


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"torch": "2.6", "with": "vllm", "requirements": ["xformers==0.0.29"]}, "needs torch==2.5.1"),
        (
            {"torch": "2.5.1", "with": "vllm", "requirements": ["xformers==0.0.29"]},
            "no vllm that takes xformers==0.0.29 (it needs xformers==0.0.28.post3)",
        ),
        ({"torch": "2.5", "requirements": ["vllm==0.8.5"]}, "vllm 0.8.5 of the requirements, which needs torch==2.6.0"),
        ({"torch": "2.6", "cuda": "11.8", "requirements": ["vllm==0.8.5"]}, "is built for CUDA 12"),
        ({"torch": "2.6", "python": "3.13", "requirements": ["vllm==0.8.5"]}, "which needs Python"),
        ({"torch": "2.6", "requirements": ["vllm==0.8.5", "xformers==0.0.29.post3"]}, "against xformers==0.0.29.post3"),
        ({"torch": "2.10", "with": "xformers", "gpu": "v100"}, "paired with no xformers for"),
        ({"torch": "2.10", "requirements": ["xformers==0.0.35"], "gpu": "v100"}, "has no code for"),
    ],
)
def test_the_users_own_releases_bind(facts: Matrix, values: dict[str, object], said: str) -> None:
    found = solve(parse_request(values), facts)
    assert isinstance(found, Refusal), found
    assert any(said in reason.because for reason in found.because), found.because


def test_a_release_of_the_user_chooses_the_torch_that_it_pins(facts: Matrix) -> None:
    for line, torch in (("vllm==0.6.0", "2.4.0"), ("vllm==0.8.5", "2.6.0"), ("xformers<0.0.29,>=0.0.28", "2.5.1")):
        found = solve(parse_request({"torch": ">=0", "requirements": ["torch", line]}), facts)
        assert isinstance(found, Stack)
        assert found.frameworks == {"torch": torch}


def test_a_release_that_no_row_describes_is_the_users_own_choice(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.6", "requirements": ["vllm==99.1", "xformers"]}), facts)
    assert isinstance(found, Stack)


def test_a_gpu_gets_the_release_that_has_code_for_it(facts: Matrix) -> None:
    for gpu in ("h100", "a100", "b200"):
        assert _lines(facts, **{"torch": "2.10", "cuda": "12.8", "with": "xformers", "gpu": gpu})["xformers"]


def test_a_release_that_is_pinned_by_another_must_have_code_for_the_gpu(facts: Matrix, tmp_path: Path) -> None:
    wish = {"torch": "2.7.1", "cuda": "12.6", "gpu": "v100-sxm2-32gb"}
    for more in ({"with": "vllm"}, {"requirements": ["vllm==0.10.1"]}):
        found = solve(parse_request({**wish, **more}), facts)
        assert isinstance(found, Refusal)
        assert not found.is_proved
        reason = next(item for item in found.because if "pins xformers 0.0.31, which has no code for" in item.because)
        assert "V100" in reason.because
        assert isinstance(solve(parse_request({**wish, **more, "gpu": "t4"}), facts), Stack)
    data = shutil.copytree(asset_dir("compat"), tmp_path / "compat")
    rows = (data / "companions.toml").read_text().split("\n\n")
    kept = [row for row in rows if not ('"xformers"' in row and 'version = "0.0.31"' in row)]
    (data / "companions.toml").write_text("\n\n".join(kept))
    assert isinstance(solve(parse_request({**wish, "requirements": ["vllm==0.10.1"]}), Matrix(data)), Stack)


def test_what_the_release_pins_bounds_the_environment(facts: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in facts.companions if row.package == "vllm" and "torchvision" in row.requires)
    bounds = {demand.name: demand.specifier for demand in pair_demands([row])}
    assert bounds["torchvision"] == row.requires["torchvision"]
    assert "torch" not in bounds
    old = Demand(name="numpy", specifier="<2", why="vllm", part="with", is_bound=True)
    monkeypatch.setattr("provision.resolve.pairs.pair_demands", lambda pairs: [old] if pairs else [])
    found = solve(parse_request({"torch": "2.6.0", "with": "vllm"}), facts)
    assert isinstance(found, Stack)
    assert found.packages["numpy"].startswith("1.")


def test_pins_of_two_extras_are_held_against_each_other(facts: Matrix) -> None:
    # vllm 0.29 needs numba 0.65.0 and sglang 0.5.21 0.65.1; no companion row says so.
    for torch in ({"torch": "2.13"}, {"torch": "2.8"}):
        found = solve(parse_request({"with": "vllm,sglang", **torch}), facts)
        assert isinstance(found, Refusal)
        assert any(reason.subject == "pins" for reason in found.because)
        dropped = {way.change for way in found.alternatives}
        assert {"without sglang", "without vllm"} <= dropped


def test_what_two_extras_need_in_turn_is_held_too(facts: Matrix) -> None:
    found = solve(parse_request({"with": "vllm,sglang", "torch": "2.8"}), facts)
    assert isinstance(found, Refusal)
    assert any("outlines 0.1.11 needs outlines-core==0.1.26" in reason.because for reason in found.because)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"requirements": ["einops"]}, "your requirements file names no framework"),
        ({"requirements": ["einops"], "cuda": "12.4"}, "your requirements file names no framework"),
        ({"with": "jupyter"}, "`--with jupyter` names no framework"),
        ({"with": "jupyter", "requirements": ["einops"]}, "neither `--with jupyter` nor your requirements file"),
    ],
)
def test_nothing_is_dropped_in_silence(facts: Matrix, values: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        solve(parse_request(values), facts)


def test_a_named_python_is_enough_beside_cuda_alone(facts: Matrix) -> None:
    values = {"cuda": "12.4", "python": "3.11", "with": "jupyter", "requirements": ["einops"]}
    found = solve(parse_request(values), facts)
    assert isinstance(found, Stack)
    assert found.python == "3.11"


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({"torch": "2.4", "tensorflow": "2.17", "requirements": ["tensorflow==2.17"]}, ("--tensorflow", "2.17")),
        ({"torch": "2.4.1", "with": "vllm", "requirements": ["torch==2.4.1"]}, ("--torch", "2.4.1")),
        ({"torch": ">=0", "jax": "0.4.30", "cuda": "13", "requirements": ["jax[cuda13]==0.4.30"]}, ("--cuda", "13")),
    ],
)
def test_advice_keeps_what_the_requirements_ask_for(facts: Matrix, values: dict[str, object], kept: tuple) -> None:
    found = solve(parse_request(values), facts)
    assert isinstance(found, Refusal)
    for item in found.alternatives:
        assert kept in zip(item.flags, item.flags[1:], strict=False)


def test_advice_names_a_framework_that_no_line_names_and_tells_what_was_left_out(facts: Matrix) -> None:
    values = {"torch": "1.13", "platform": "linux/arm64", "gpu": ["V100", "orin"], "requirements": ["numpy>=2"]}
    found = solve(parse_request(values), facts)
    assert isinstance(found, Refusal)
    (way,) = found.alternatives
    assert "--torch" in way.flags
    assert "without --gpu orin" in way.change
    flags = dict(zip(way.flags[::2], way.flags[1::2], strict=True))
    asked = {name.removeprefix("--"): value for name, value in flags.items()}
    assert isinstance(solve(parse_request({**asked, "requirements": values["requirements"]}), facts), Stack)


def test_advice_meets_a_range_that_the_requirements_ask_for(facts: Matrix) -> None:
    for line, is_met in (("torch>=2.2", True), ("torch<2.5,>=2.2", False)):
        found = solve(parse_request({"torch": "2.4.1", "with": "vllm", "requirements": [line]}), facts)
        assert isinstance(found, Refusal)
        flags = [item.flags for item in found.alternatives if "vllm" in item.flags]
        assert (("--torch", "2.5", "--with", "vllm") in flags) is is_met


WHEEL = "torch @ https://download.example/torch-2.4.1%2Bcu121-cp311-cp311-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("line", "values", "said"),
    [
        ("torch @ https://example.org/torch.whl", {}, "write the version that it has, as in `torch==VERSION`"),
        ("torch @ https://example.org/torch.whl", {"python": "3.11"}, "write the version that it has"),
        (WHEEL, {}, "write `torch==2.4.1+cu121` in its place and say `--python 3.11`, and"),
        (WHEEL, {"python": "3.11"}, "write `torch==2.4.1+cu121` in its place, and"),
        (WHEEL.replace("x86_64", "aarch64"), {"platform": "linux/amd64"}, "its name says linux/arm64"),
        (WHEEL, {"python": "3.12"}, "its name says Python 3.11"),
        (f"{WHEEL} ; python_version < '3.12'", {"torch": "2.4"}, "write `torch==2.4.1+cu121` in its place"),
        (WHEEL.replace("cu121", "cu117"), {}, "the facts do not know the wheel there"),
    ],
)
def test_a_framework_is_not_taken_from_an_address(facts: Matrix, line: str, values: dict[str, str], said: str) -> None:
    found = solve(parse_request({"requirements": [line], **values}), facts)
    assert isinstance(found, Refusal)
    assert not found.is_proved
    assert found.conflict == (f"requirement {line}",)
    assert said in found.because[0].because
    assert ("in its place" in found.because[0].because) is ("in its place" in said or "write the version" in said)


def test_an_address_that_does_not_count_here_is_none(facts: Matrix) -> None:
    request = {"torch": "2.4", "requirements": [f"{WHEEL} ; sys_platform == 'win32'"]}
    assert isinstance(solve(parse_request(request), facts), Stack)


@pytest.mark.parametrize(
    ("requirements", "driver", "said"),
    [
        (["torch"], "300", "`requirement torch`"),
        (["einops", "torch; python_version>='3'"], "300", "`requirement torch; python_version>='3'`"),
        (["torch; python_version>='3'", "torch>=1"], "300", "`requirement torch"),
    ],
)
def test_a_wish_for_any_version_is_called_by_its_line(
    facts: Matrix, requirements: list[str], driver: str, said: str
) -> None:
    found = solve(parse_request({"torch": ">=0", "driver": driver, "requirements": requirements}), facts)
    assert isinstance(found, Refusal)
    assert said in found.message
    assert ">=0" not in f"{found}"


@pytest.mark.parametrize("variant", ["rocm6.1", "xpu"])
def test_a_build_for_other_hardware_is_not_covered(facts: Matrix, variant: str) -> None:
    found = solve(parse_request({"torch": f"2.4.1+{variant}"}), facts)
    assert isinstance(found, Refusal)
    assert not found.is_proved
    (reason,) = found.because
    assert f"torch 2.4.1+{variant} is a build for other hardware, which the facts do not cover" in reason.because
    assert "leave `+" in reason.because
    never = solve(parse_request({"torch": "2.4.1+cu117"}), facts)
    assert isinstance(never, Refusal)
    assert never.is_proved


def test_no_advice_is_given_against_a_build_that_the_requirements_name(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.4.1+xpu", "requirements": ["torch==2.4.1+xpu"]}), facts)
    assert isinstance(found, Refusal)
    assert found.alternatives == ()
