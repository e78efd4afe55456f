"""Which apt packages an environment needs beside its wheels."""

from __future__ import annotations

import pytest

from provision.matrix.load import Matrix
from provision.resolve.system import system_packages


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return Matrix()


def test_packages_have_the_name_of_the_system(facts: Matrix) -> None:
    assert system_packages(facts, ["opencv-python"], "debian12") == ("libgl1", "libglib2.0-0", "libxcb1")
    assert system_packages(facts, ["opencv-python"], "debian13") == ("libgl1", "libglib2.0-0t64", "libxcb1")


def test_what_two_need_stands_there_once_and_sorted(facts: Matrix) -> None:
    found = system_packages(facts, ["open3d", "lightgbm", "opencv-python"], "debian12")
    assert found == tuple(sorted(set(found)))
    assert {"libgomp1", "libgl1"} <= set(found)


def test_what_is_built_brings_its_compiler(facts: Matrix) -> None:
    assert set(system_packages(facts, ["psycopg2"], "ubuntu24.04")) == {"gcc", "libc6-dev", "libpq-dev"}


@pytest.mark.parametrize(
    ("names", "os_id"), [(["torch", "numpy"], "debian12"), ([], "debian12"), (["lightgbm"], "rhel9")]
)
def test_where_nothing_is_known_nothing_is_named(facts: Matrix, names: list[str], os_id: str) -> None:
    assert system_packages(facts, names, os_id) == ()


def test_names_may_come_from_a_generator(facts: Matrix) -> None:
    assert system_packages(facts, (name for name in ("torch", "lightgbm")), "debian13") == ("libgomp1",)


def test_every_need_is_known_on_both_systems_of_the_python_images(facts: Matrix) -> None:
    for row in facts.rows("system_libraries.toml", "need"):
        for os_id in ("debian12", "debian13"):
            assert system_packages(facts, [row.id], os_id), (row.id, os_id)
