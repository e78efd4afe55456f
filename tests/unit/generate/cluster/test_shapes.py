"""Documents that core Kubernetes does not define are held against the published definitions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from provision.errors import DataError
from provision.generate.cluster.shapes import check_shape, find_faults, shape_of
from provision.matrix.load import Matrix

VALUES = {"driver": {"enabled": True, "kernelModuleType": "open"}, "devicePlugin": {"config": {"data": {"any": "x"}}}}


def test_known_keys_and_values_pass(matrix: Matrix) -> None:
    assert find_faults("gpu-operator", VALUES, matrix) == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"driver": {"useOpenKernelModule": True}}, "`driver.useOpenKernelModule` is not a key"),
        ({"driver": {"kernelModuleType": "closed"}}, "takes auto, open, proprietary"),
        ({"driver": {"enabled": "yes"}}, "takes a boolean"),
        ({"driver": "yes"}, "`driver` takes keys"),
        ({"devicePlugin": {"config": {"data": {"any": 1}}}}, "takes a string"),
        # The operator labels a node with no other layout than this one by itself.
        ({"migManager": {"config": {"default": "all-1g.10gb"}}}, "takes all-disabled"),
    ],
)
def test_anything_else_of_the_operator_is_named(value: dict[str, object], said: str, matrix: Matrix) -> None:
    (fault,) = find_faults("gpu-operator", value, matrix)
    assert said in fault


def test_a_truth_value_is_no_number(matrix: Matrix) -> None:
    value = {"version": "v1", "sharing": {"mps": {"resources": [{"name": "x", "replicas": True}]}}}
    assert find_faults("device-plugin", value, matrix) == (
        "`sharing.mps.resources[].replicas` takes an integer, not True",
    )


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        (
            "ClusterQueue",
            {"resourceGroups": [{"coveredResources": ["cpu"]}]},
            "`spec.resourceGroups[].flavors` is missing",
        ),
        ("ClusterQueue", {"queueingStrategy": "Fifo"}, "takes StrictFIFO, BestEffortFIFO"),
        ("ScaledObject", {"triggers": [], "scaleTargetRef": {"name": "x"}, "maxReplicas": 3}, "is not a key"),
        ("NodePool", {"template": {"spec": {}}}, "nodeClassRef"),
        ("TrainJob", {"trainer": {"numNodes": "2"}}, "takes an integer"),
        ("ServiceMonitor", {"selector": {}, "endpoints": {}}, "takes a list"),
    ],
)
def test_a_custom_resource_that_its_server_would_refuse_is_named(
    kind: str, spec: dict[str, Any], said: str, matrix: Matrix
) -> None:
    document = {"apiVersion": matrix.shapes[kind].api, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    assert shape_of(document, matrix) == kind
    assert any(said in fault for fault in find_faults(kind, document, matrix))


def test_a_kind_of_another_version_is_not_judged_by_this_one(matrix: Matrix) -> None:
    assert shape_of({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue"}, matrix) is None


def test_such_a_document_is_not_written(matrix: Matrix) -> None:
    with pytest.raises(DataError, match="JobSet"):
        check_shape("JobSet", {"spec": {"typo": 1}}, matrix)


def test_a_changed_definition_changes_what_passes(matrix: Matrix, tmp_path: Path) -> None:
    shutil.copytree(matrix.data_dir, tmp_path / "compat")
    path = tmp_path / "compat" / "shapes" / "jobset.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["fields"]["spec"]["ttlSecondsAfterFinished"]
    path.write_text(json.dumps(document), encoding="utf-8")
    value = {"spec": {"ttlSecondsAfterFinished": 60}}
    assert find_faults("JobSet", value, matrix) == ()
    assert find_faults("JobSet", value, Matrix(tmp_path / "compat")) == ("`spec.ttlSecondsAfterFinished` is not a key",)
