"""Documents without a published schema are held against the facts."""

from __future__ import annotations

import pytest

from provision.errors import DataError
from provision.generate.cluster.fields import check_fields, find_faults
from provision.matrix.load import Matrix

SOUND = {"driver": {"enabled": True, "kernelModuleType": "open"}, "devicePlugin": {"config": {"data": {"any": "x"}}}}


def test_known_keys_and_values_pass(matrix: Matrix) -> None:
    assert find_faults("gpu-operator", SOUND, matrix) == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"driver": {"useOpenKernelModules": True}}, "`driver.useOpenKernelModules` is no key"),
        ({"driver": {"kernelModuleType": "closed"}}, "takes auto, open, proprietary"),
        ({"driver": {"enabled": "yes"}}, "takes a flag"),
        ({"driver": "yes"}, "`driver` is no key"),
        ({"devicePlugin": {"config": {"data": {"any": 1}}}}, "takes a text"),
    ],
)
def test_anything_else_is_named(value: dict[str, object], said: str, matrix: Matrix) -> None:
    (fault,) = find_faults("gpu-operator", value, matrix)
    assert said in fault


def test_a_truth_value_is_no_number(matrix: Matrix) -> None:
    value = {"sharing": {"mps": {"resources": [{"name": "x", "replicas": True}]}}}
    assert find_faults("device-plugin", value, matrix) == (
        "`sharing.mps.resources[].replicas` takes a whole, not True",
    )


def test_such_a_document_is_not_written(matrix: Matrix) -> None:
    with pytest.raises(DataError):
        check_fields("jobset", {"spec": {"typo": 1}}, matrix)
