"""An extra that is built against PyTorch comes in the release that goes with it, or not at all."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.resolve.environment import Demand
from provision.resolve.pairs import pair_demands
from provision.resolve.request import parse_request
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
    assert found.request == {"extras": ["vllm"]}


def test_an_extra_alone_takes_a_framework_it_is_for(facts: Matrix) -> None:
    found = solve(parse_request({"with": "huggingface", "python": "3.12"}), facts)
    assert isinstance(found, Stack)
    assert "torch" in found.frameworks


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


def test_what_the_release_pins_bounds_the_environment(facts: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in facts.companions if row.package == "vllm" and "torchvision" in row.requires)
    bounds = {demand.name: demand.specifier for demand in pair_demands([row])}
    assert bounds["torchvision"] == row.requires["torchvision"]
    assert "torch" not in bounds
    old = Demand(name="numpy", specifier="<2", why="vllm", part="with", is_bound=True)
    monkeypatch.setattr("provision.resolve.solve.pair_demands", lambda pairs: [old] if pairs else [])
    found = solve(parse_request({"torch": "2.6.0", "with": "vllm"}), facts)
    assert isinstance(found, Stack)
    assert found.packages["numpy"].startswith("1.")


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


def test_no_advice_is_given_against_a_build_that_the_requirements_name(facts: Matrix) -> None:
    found = solve(parse_request({"torch": "2.4.1+cpu", "requirements": ["torch==2.4.1+cpu"]}), facts)
    assert isinstance(found, Refusal)
    assert found.is_proved
    assert found.alternatives == ()
