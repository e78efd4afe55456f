"""Every published row resolves to itself: the cheapest test of the whole matrix."""

import pytest

from provision.matrix.load import Matrix
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Stack

MATRIX = Matrix()


@pytest.mark.parametrize("build", MATRIX.torch_builds, ids=lambda row: f"{row.torch}+{row.variant}")
def test_torch_build_resolves_to_itself_on_every_python(build):
    for python in build.pythons:
        found = solve(parse_request({"torch": build.torch, "cuda": build.cuda, "python": python}), MATRIX)
        assert isinstance(found, Stack), (python, [reason.because for reason in found.because])
        assert found.frameworks["torch"] == build.torch
        assert found.variant == build.variant
        assert found.python == python


@pytest.mark.parametrize("row", MATRIX.tensorflow, ids=lambda row: row.version)
def test_tensorflow_release_resolves_to_itself_on_every_python(row):
    for python in row.pythons:
        found = solve(parse_request({"tensorflow": row.version, "python": python}), MATRIX)
        assert isinstance(found, Stack), (python, [reason.because for reason in found.because])
        assert found.packages["tensorflow"] == row.version
        assert found.cuda == ".".join(row.cuda.split(".")[:2])


@pytest.mark.parametrize("row", MATRIX.jax, ids=lambda row: f"{row.version}-{row.variant}")
def test_jax_release_resolves_to_itself_on_every_python(row):
    major = row.variant.removeprefix("cuda")
    for python in row.pythons:
        found = solve(parse_request({"jax": row.version, "cuda": major, "python": python}), MATRIX)
        assert isinstance(found, Stack), (python, [reason.because for reason in found.because])
        assert found.packages["jax"] == row.version
        assert found.variant == row.variant
