"""The trees of the page, one by one; tests/browser holds the whole against the resolver."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from provision.assets import asset_dir
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus
from provision.records import replace
from provision.resolve.bases import Base
from provision.resolve.options import Option, offer
from provision.resolve.request import ANY, FRAMEWORKS, PLATFORMS, Request, matches, parse_request
from provision.resolve.rules import OPTION_RULES, Rejection, Wish, driver_warning, reject_wish
from provision.resolve.solve import complete, solve
from provision.resolve.stack import Refusal
from provision.resolve.survey import BRANCH, CANDIDATE, DRIVER, GPU, _Survey
from provision.versions import branch_of, parse

MATRIX = Matrix()
QUESTIONS = 800
PLATFORM = PLATFORMS[0]


@pytest.fixture(scope="module")
def tables() -> _Survey:
    return _Survey(MATRIX)


def _walk(tables: _Survey, tree: int, at: Mapping[str, int]) -> Any:
    """Return what a question gets to, plain."""
    while tree in tables.children:
        axis, children = tables.children[tree]
        tree = children[at[axis]]
    return _plain(tables, tree)


def _plain(tables: _Survey, number: int) -> Any:
    row = tables.values[number]
    if isinstance(row, dict):
        return {name: _plain(tables, item) for name, item in row.items()}
    return [_plain(tables, item) for item in row] if isinstance(row, list) else row


def _said(rejections: Any, names: Mapping[str, str]) -> list[tuple[str, bool, str]]:
    """Return rejections in the words of the resolver."""
    found = []
    for item in rejections:
        because = item["because"]
        for mark, name in names.items():
            because = because.replace(mark, name)
        found.append((item["rule"], item["is_proved"], because))
    return found


def _place(tables: _Survey, driver: str | None) -> int:
    return 0 if driver is None else sum(parse(text) <= parse(driver) for text in tables.drivers)


def _trees(tables: _Survey, option: Option) -> list[int]:
    return tables._rules(option, PLATFORM)


def test_flag_of_a_gpu_means_that_gpu(tables: _Survey) -> None:
    for name, flag, *_ in tables.gpus:
        (found,) = find_gpus(MATRIX, flag)
        assert found.name == name


def test_gpus_of_a_class_differ_in_nothing_a_rule_reads(tables: _Survey) -> None:
    for name, flag, _, _, _, number, *_ in tables.gpus:
        (gpu,) = find_gpus(MATRIX, flag)
        ((_, (row,)),) = tables.axes["gpus"][1 + number]
        traits = ("first_cuda", "last_cuda", "first_driver_branch", "last_driver_branch", "host", "architecture")
        assert [getattr(row, trait) for trait in traits] == [getattr(gpu, trait) for trait in traits], name
        assert row.compute_capability == gpu.compute_capability
        assert row.name == GPU


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_version_meets_the_open_wish(framework: str) -> None:
    rows = {"torch": MATRIX.torch_releases, "tensorflow": MATRIX.tensorflow, "jax": MATRIX.jax}[framework]
    assert all(matches(ANY, row.version) for row in rows)
    assert not isinstance(solve(parse_request({framework: ANY}), MATRIX), Refusal)


def test_a_tree_says_what_its_function_says_of_every_question(tables: _Survey) -> None:
    asked: list[str] = []

    def say(question: Any) -> int:
        # What is read depends on what was read before.
        words = f"{question.python} {question.os and question.os.id}" if question.cuda == "12.1" else question.driver
        asked.append(str(words))
        return tables.add({"said": str(words)})

    tree = tables._trace(say, {})
    count = len(tables.axes["python"]) * len(tables.axes["os"])
    assert len(asked) == count + len(tables.axes["driver"]) * (len(tables.axes["cuda"]) - 1)
    draw = random.Random(1)  # noqa: S311 - a draw of questions, no secret
    for _ in range(QUESTIONS):
        at = {axis: draw.randrange(len(values)) for axis, values in tables.axes.items()}
        part = {axis: tables.axes[axis][position] for axis, position in at.items()}
        words = f"{part['python']} {part['os'] and part['os'].id}" if part["cuda"] == "12.1" else part["driver"]
        assert _walk(tables, tree, at) == {"said": str(words)}


def test_a_function_that_reads_nothing_is_a_leaf_and_a_part_that_changes_nothing_no_branch(tables: _Survey) -> None:
    assert tables._trace(lambda question: tables.nothing, {}) == tables.nothing
    assert tables._trace(lambda question: tables.add([question.os == 1]), {}) == tables.add([False])


def test_rules_say_of_any_gpu_driver_cuda_and_system_what_their_trees_say(tables: _Survey) -> None:
    draw = random.Random(2)  # noqa: S311
    options = [
        option for kind in (*FRAMEWORKS, "cuda") for option in offer(MATRIX, kind, parse_request({kind: ANY}), PLATFORM)
    ]
    unfit = tables._trace(tables._unfit, {"platform": PLATFORM})
    rejected = 0
    for _ in range(QUESTIONS):
        option = draw.choice(options)
        row = draw.choice(tables.gpus)
        (gpu,) = find_gpus(MATRIX, row[1])
        odd = f"{draw.randrange(380, 640)}.{draw.randrange(0, 300)}.{draw.randrange(0, 30):02d}"
        driver = draw.choice((None, odd, str(draw.randrange(100, 999)), draw.choice(tables.drivers[1:])))
        cuda, system = draw.choice(tables.axes["cuda"]), draw.choice(tables.axes["os"])
        at = {
            "cuda": tables.axes["cuda"].index(cuda),
            "gpus": 1 + row[5],
            "driver": _place(tables, driver),
            "os": tables.axes["os"].index(system),
        }
        wish = Wish(
            request=Request(cuda=cuda),
            platform=PLATFORM,
            gpus=((gpu.id, (gpu,)),),
            os=system,
            flavor="runtime",
            driver=driver,
        )
        names = {GPU: gpu.name, DRIVER: str(driver), CANDIDATE: option.label}
        expected = [(item.rule, item.is_proved, item.because) for item in reject_wish(MATRIX, wish)]
        assert _said(_walk(tables, unfit, at), names) == expected
        found = [rule(MATRIX, wish, option) for rule in OPTION_RULES]
        expected = [(item.rule, item.is_proved, item.because) for item in found if item is not None]
        leaves = [_walk(tables, tree, at) for tree in _trees(tables, option)]
        assert [said for leaf in leaves for said in _said(leaf, names)] == expected, (option.label, wish)
        rejected += bool(expected)
    assert QUESTIONS // 4 < rejected < QUESTIONS


@pytest.mark.parametrize(("framework", "cuda"), [("torch", None), ("tensorflow", None), ("jax", None), ("jax", "13.3")])
def test_an_environment_is_the_resolvers_with_every_glibc(tables: _Survey, framework: str, cuda: str | None) -> None:
    request = parse_request({framework: ANY})
    changes = 0
    for option in offer(MATRIX, framework, request, PLATFORM)[::24]:
        for python in option.pythons[:2]:
            known = {"platform": PLATFORM, "python": python, "gpus": (), framework: ANY}
            tree = tables._closed(option, known, ())
            said = []
            for position, glibc in enumerate(tables.axes["glibc"]):
                at = {"glibc": position, "cuda": tables.axes["cuda"].index(cuda), "gpus": 0, "driver": 0, "os": 0}
                said.append(_walk(tables, tree, at))
                wish = Wish(request=Request(cuda=cuda), platform=PLATFORM, gpus=(), os=None, flavor="runtime")
                base = Base(python_image=None, cuda_image=None, glibc=glibc)
                found = complete(MATRIX, wish, (option,), python, base)
                if isinstance(found, Rejection):
                    assert _said(said[-1], {CANDIDATE: option.label}) == [(found.rule, found.is_proved, found.because)]
                else:
                    assert dict(said[-1]["packages"]) == {pick.name: pick.version for pick in found.picks}
            changes += sum(one != other for one, other in pairwise(said))
    assert changes


def test_every_driver_gets_the_warning_that_the_resolver_gives_it(tables: _Survey) -> None:
    tree = tables._trace(tables._driver_warning, {})
    ends = set()
    for branch in range(100, 700):
        for driver in (str(branch), f"{branch}.10", f"{branch}.150.02", f"{branch}.299.99"):
            leaf = _walk(tables, tree, {"driver": _place(tables, driver)})
            said = [text.replace(DRIVER, driver) for text in dict(leaf).values()]
            expected = driver_warning(MATRIX, driver)
            assert [text.replace(BRANCH, str(branch_of(driver))) for text in said] == ([expected] if expected else [])
            ends.add(next((word for word in ("below", "no security", "newer") if word in (expected or "")), None))
    assert ends == {"below", "no security", "newer", None}


def test_options_share_the_tree_of_a_rule_exactly_where_it_reads_the_same_of_them(tables: _Survey) -> None:
    option = next(item for item in offer(MATRIX, "torch", Request(torch="2.1.2"), PLATFORM) if item.is_known)
    twin = replace(option, version="2.1.99", fact=replace(option.fact, id="torch/2.1.99"))
    assert _trees(tables, option) == _trees(tables, twin)
    assert _trees(tables, option) != _trees(tables, replace(option, minimum_driver="599.99"))


def test_one_changed_fact_changes_the_trees(tables: _Survey, tmp_path: Path) -> None:
    (option,) = (item for item in offer(MATRIX, "cuda", Request(cuda="12.1.1"), PLATFORM))
    path = shutil.copytree(asset_dir("compat"), tmp_path / "compat") / "cuda.toml"
    text = path.read_text(encoding="utf-8")
    head, row = text.split('version = "12.1.1"', 1)
    path.write_text(
        f'{head}version = "12.1.1"' + re.sub(r'minimum_driver = ".*?"', 'minimum_driver = "533.33.33"', row, count=1),
        encoding="utf-8",
    )
    changed = _Survey(Matrix(tmp_path / "compat"))
    ends = []
    for survey in (tables, changed):
        at = {"driver": _place(survey, "533.33"), "gpus": 0, "cuda": 0, "os": 0}
        leaves = [_walk(survey, tree, at) for tree in _trees(survey, option)]
        ends.append([said for leaf in leaves for said in _said(leaf, {})])
    assert ends == [[], [("driver", True, "needs driver 533.33.33 or newer")]]
