"""GPUs are offered in ways that exist together, and a Job asks for what is offered."""

from __future__ import annotations

import pytest

from provision.errors import IncompatibleError, UnknownError, UsageError
from provision.generate.cluster.devices import (
    check_devices,
    find_layout,
    find_products,
    plugin_config,
    resource_name,
)
from provision.generate.cluster.options import ClusterOptions, Tenant
from provision.generate.subject import Subject
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
        (ClusterOptions(mig_strategy="single", mig_profile="1g.10gb"), "nvidia.com/gpu"),
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
        check_devices(image_lock, replace(MPS, mig_strategy="single", mig_profile="1g.10gb"), "operator", matrix)


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


@pytest.mark.parametrize("change", [{"sharing": "time-slicing", "replicas": 2}, {"is_queued": True}])
def test_claims_are_of_whole_gpus_and_no_queue_counts_them(
    change: dict[str, object], image_lock: Subject, matrix: Matrix
) -> None:
    options = ClusterOptions(is_claimed=True, tenants=(Tenant(name="a", gpus=1),))
    check_devices(image_lock, options, "operator", matrix)
    with pytest.raises(UsageError, match="exclude"):
        check_devices(image_lock, replace(options, **change), "operator", matrix)


@pytest.mark.parametrize(
    ("gpu", "options", "key", "values"),
    [
        ("h100-sxm5-80gb", ClusterOptions(), "nvidia.com/gpu.product", ("NVIDIA-H100-80GB-HBM3",)),
        ("t4", ClusterOptions(), "nvidia.com/gpu.product", ("Tesla-T4",)),
        # A family is every model of it.
        (
            "h100",
            ClusterOptions(),
            "nvidia.com/gpu.product",
            ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL", "NVIDIA-H100-PCIe"),
        ),
        # NVL has 94 GB, and no device of 10.
        (
            "h100",
            MIXED,
            "nvidia.com/mig-1g.10gb.product",
            ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA-H100-PCIe-MIG-1g.10gb"),
        ),
        (
            "a100-sxm4-40gb",
            ClusterOptions(mig_strategy="single", mig_profile="3g.20gb"),
            "nvidia.com/gpu.product",
            ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",),
        ),
        # A shared GPU has a name of its own, so that its product keeps its own.
        ("l4", SHARED, "nvidia.com/gpu.product", ("NVIDIA-L4",)),
    ],
)
def test_nodes_are_found_by_what_feature_discovery_writes(
    gpu: str, options: ClusterOptions, key: str, values: tuple[str, ...], image_lock: Subject, matrix: Matrix
) -> None:
    products = find_products(replace(image_lock, gpus=(gpu,)), options, matrix)
    assert (products.key, products.values) == (key, values)


def test_where_one_label_of_several_is_not_known_none_is_asked_for(image_lock: Subject, matrix: Matrix) -> None:
    assert find_products(replace(image_lock, gpus=("v100", "t4")), ClusterOptions(), matrix).values == ()


def test_a_profile_that_the_gpu_does_not_have_is_refused_with_those_it_has(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(IncompatibleError) as caught:
        find_products(replace(image_lock, gpus=("a100-sxm4-40gb",)), MIXED, matrix)
    assert "its profiles are 1g.5gb" in caught.value.because[1]


def test_profiles_of_a_gpu_that_the_facts_do_not_know_are_unknown(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UnknownError, match="is not known"):
        find_products(replace(image_lock, gpus=("gb200",)), MIXED, matrix)


def test_a_layout_cuts_every_gpu_into_as_many_devices_as_it_holds(image_lock: Subject, matrix: Matrix) -> None:
    layout = find_layout(MIXED, find_products(image_lock, MIXED, matrix), matrix)
    assert layout is not None
    assert layout.name == "all-1g.10gb"
    assert layout.config["mig-configs"][layout.name] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}
    ]
    # A node that nobody has labelled yet gets this one.
    assert layout.config["mig-configs"]["all-disabled"] == [{"devices": "all", "mig-enabled": False}]


def test_models_with_other_numbers_of_devices_are_told_apart(matrix: Matrix) -> None:
    options = ClusterOptions(mig_strategy="mixed", mig_profile="1g.24gb")
    subject = Subject(name="x", digest="sha256:x", facts_date="", driver_minimum="1")
    layout = find_layout(options, find_products(subject, options, matrix), matrix)
    assert layout is not None
    assert [part["mig-devices"] for part in layout.config["mig-configs"]["all-1g.24gb"]] == [{"1g.24gb": 4}]
    none = ClusterOptions(mig_strategy="mixed", mig_profile="7g.999gb")
    with pytest.raises(IncompatibleError, match="no GPU that is known"):
        find_layout(none, find_products(subject, none, matrix), matrix)
