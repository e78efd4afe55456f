"""GPUs are offered in ways that exist together, and a Job asks for what is offered."""

from __future__ import annotations

import pytest

from provision.errors import IncompatibleError, UsageError
from provision.generate.cluster.devices import check_devices, plugin_config, resource_name
from provision.generate.cluster.options import ClusterOptions, Subject
from provision.matrix.load import Matrix
from provision.records import replace

SHARED = ClusterOptions(sharing="time-slicing", replicas=4)
MPS = ClusterOptions(sharing="mps", replicas=4)
MIXED = ClusterOptions(mig_strategy="mixed", mig_profile="1g.10gb")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (ClusterOptions(), "nvidia.com/gpu"),
        (SHARED, "nvidia.com/gpu.shared"),
        (ClusterOptions(mig_strategy="single"), "nvidia.com/gpu"),
        (MIXED, "nvidia.com/mig-1g.10gb"),
        (replace(MIXED, sharing="time-slicing", replicas=2), "nvidia.com/mig-1g.10gb.shared"),
    ],
)
def test_a_job_asks_for_what_the_plugin_offers(options: ClusterOptions, name: str, matrix: Matrix) -> None:
    assert resource_name(options, matrix) == name


def test_a_time_slice_is_never_taken_for_two(matrix: Matrix) -> None:
    way = plugin_config(SHARED, matrix)["sharing"]["timeSlicing"]
    assert way["failRequestsGreaterThanOne"] is True
    assert way["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]


def test_mps_has_no_such_switch(matrix: Matrix) -> None:
    assert "failRequestsGreaterThanOne" not in plugin_config(MPS, matrix)["sharing"]["mps"]


def test_mps_and_mig_exclude_each_other(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(IncompatibleError, match="exclude"):
        check_devices(image_lock, replace(MPS, mig_strategy="single"), "operator", matrix)


def test_mps_needs_the_operator(node_lock: Subject, matrix: Matrix) -> None:
    check_devices(node_lock, MPS, "operator", matrix)
    with pytest.raises(UsageError, match="GPU Operator"):
        check_devices(node_lock, MPS, "node", matrix)


def test_a_gpu_without_mig_is_not_split(image_lock: Subject, matrix: Matrix) -> None:
    check_devices(image_lock, MIXED, "operator", matrix)
    with pytest.raises(IncompatibleError, match="no MIG"):
        check_devices(replace(image_lock, gpus=("L40S",)), MIXED, "operator", matrix)


@pytest.mark.parametrize("options", [SHARED, MIXED])
def test_one_pod_gets_one_part_of_a_gpu(options: ClusterOptions, image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="a Pod gets one"):
        check_devices(image_lock, replace(options, gpus=2), "operator", matrix)
