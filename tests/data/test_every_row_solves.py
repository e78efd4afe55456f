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
        if row.delivery == "legacy":
            built_for = found.packages["jaxlib"].partition(".cudnn")[2][:1]
            assert _cudnn_major(found) == built_for
        elif row.version in _CUDNN_8_PLUGINS:
            assert _cudnn_major(found) == "8"


_CUDNN_8_PLUGINS = ("0.4.23", "0.4.24", "0.4.25", "0.4.26", "0.4.27", "0.4.28")
"""Releases whose jaxlib build for CUDA 12 is named cudnn89; 0.4.29 is the first named after cuDNN 9."""


def _cudnn_major(found):
    """Return the major of the cuDNN wheel, or of the base image where the system brings cuDNN."""
    wheels = [version for name, version in found.packages.items() if name.startswith("nvidia-cudnn")]
    (version,) = wheels or [found.cudnn]
    return version.partition(".")[0]
