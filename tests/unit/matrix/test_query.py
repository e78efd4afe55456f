"""Which GPU a name means."""

from __future__ import annotations

import pytest

from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus

MATRIX = Matrix()


@pytest.mark.parametrize("cut", ["40", "rtx 40", "rtx-409", "h10", "rtx 306"])
def test_a_name_cut_inside_a_number_names_no_gpu(cut):
    with pytest.raises(UnknownError):
        find_gpus(MATRIX, cut)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("h100", "h100"),
        ("a100-sxm4", "a100-sxm4"),
        ("A100 SXM4", "a100-sxm4"),
        ("rtx 4070", "rtx-4070"),
        ("rtx-6000-ad", "rtx-6000-ada"),
        ("v100-sxm2", "v100-sxm2"),
    ],
)
def test_a_name_cut_between_words_names_all_that_go_on(name, begins):
    found = find_gpus(MATRIX, name)
    assert found
    assert all(gpu.id.startswith(begins) for gpu in found)


def test_a_whole_name_comes_before_those_it_begins():
    assert {gpu.id for gpu in find_gpus(MATRIX, "l4")} == {"l4"}


def test_a_name_of_several_capabilities_is_refused_by_name():
    with pytest.raises(UsageError, match="different compute capabilities"):
        find_gpus(MATRIX, "rtx")
