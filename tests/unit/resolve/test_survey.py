"""The tables of the page, part by part; tests/browser holds the whole against the resolver."""

from __future__ import annotations

import pytest

from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus
from provision.resolve.request import FRAMEWORKS, Request, matches, parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal
from provision.resolve.survey import ANY, GPU, _packed, _Survey

MATRIX = Matrix()


@pytest.fixture(scope="module")
def tables() -> _Survey:
    return _Survey(MATRIX)


def test_flag_of_a_gpu_means_that_gpu(tables: _Survey) -> None:
    for name, flag, *_ in tables.gpus:
        (found,) = find_gpus(MATRIX, flag)
        assert found.name == name


def test_gpus_of_a_class_differ_in_nothing_a_rule_reads(tables: _Survey) -> None:
    for name, flag, *_, number, _fact, _segment in tables.gpus:
        (gpu,) = find_gpus(MATRIX, flag)
        row = tables.classes[number].row
        traits = ("first_cuda", "last_cuda", "first_driver_branch", "last_driver_branch", "host", "architecture")
        assert [getattr(row, trait) for trait in traits] == [getattr(gpu, trait) for trait in traits], name
        assert row.compute_capability == gpu.compute_capability
        assert row.name == GPU


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_version_meets_the_open_wish(framework: str) -> None:
    rows = {"torch": MATRIX.torch_releases, "tensorflow": MATRIX.tensorflow, "jax": MATRIX.jax}[framework]
    assert all(matches(ANY, row.version) for row in rows)
    assert not isinstance(solve(parse_request({framework: ANY}), MATRIX), Refusal)


def test_a_class_says_what_the_resolver_says_of_old_and_new_drivers(tables: _Survey) -> None:
    number = next(row[5] for row in tables.gpus if row[1] == "rtx-4090")
    line = tables._line(tables.classes[number])
    assert line["last"] is None
    branch, rejection = line["first"]
    said = tables.texts.values[tables.rejections.values[rejection][3]].replace(GPU, "GeForce RTX 4090")
    request = Request(torch="2.1", gpus=("rtx-4090",), driver=str(branch - 1))
    found = solve(request, MATRIX)
    assert isinstance(found, Refusal)
    assert said.replace("\x02", str(branch - 1)) in [reason.because for reason in found.because]


@pytest.mark.parametrize("row", [[5], [1, 1, 1], [3, 1, 3, 2, 3], [-1, -1, 0]])
def test_packed_rows_are_whole(row: list[int]) -> None:
    common, *rest = _packed(row)
    exceptions = dict(zip(rest[::2], rest[1::2], strict=True))
    assert [exceptions.get(position, common) for position in range(len(row))] == row
