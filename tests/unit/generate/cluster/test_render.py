"""Whole folders: core objects against Kubernetes' own schemas, the rest against the facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from provision.errors import UsageError
from provision.generate.cluster.fields import find_faults
from provision.generate.cluster.options import ClusterOptions, Subject, Tenant
from provision.generate.cluster.render import ClusterFiles, render_cluster
from provision.matrix.load import Matrix
from provision.records import replace

IMAGE = "registry.example/team/train:1"
FULL = ClusterOptions(
    image=IMAGE,
    nccl_tests_image="registry.example/team/nccl:1",
    script=("train.py", "--lr", "1e-3"),
    nodes=2,
    gpus=8,
    cpus=16,
    tenants=(Tenant(name="speech", gpus=0), Tenant(name="vision", gpus=8)),
    variables={"WANDB_MODE": "offline"},
)
SHARED = replace(FULL, nodes=1, gpus=1, runner="job", sharing="time-slicing", replicas=4)
CASES = {
    "jobset": FULL,
    "pytorchjob": replace(FULL, runner="pytorchjob"),
    "one Pod": replace(FULL, runner="pytorchjob", nodes=1),
    "shared": SHARED,
    "mps": replace(SHARED, sharing="mps"),
    "mig": replace(SHARED, sharing="none", replicas=None, mig_strategy="mixed", mig_profile="1g.10gb"),
}


def documents(files: ClusterFiles) -> Iterator[dict[str, Any]]:
    for artifact in files.artifacts:
        if artifact.path not in ("gpu-operator-values.yaml", "compose.yaml"):
            yield from yaml.safe_load_all(artifact.text)


def load(files: ClusterFiles, path: str) -> Any:
    (text,) = [artifact.text for artifact in files.artifacts if artifact.path == path]
    return yaml.safe_load(text)


def pods(files: ClusterFiles) -> Iterator[dict[str, Any]]:
    """Every Pod of the files."""
    return pods_in(list(documents(files)))


def pods_in(waiting: list[Any]) -> Iterator[dict[str, Any]]:
    """Every Pod of documents, however deep."""
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "containers" in item:
                yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


@pytest.mark.parametrize(
    ("name", "lock"),
    [("jobset", "image_lock"), ("pytorchjob", "node_lock"), ("shared", "node_lock"), ("mig", "node_lock")],
)
def test_core_objects_are_what_kubernetes_takes(
    name: str, lock: str, matrix: Matrix, request: pytest.FixtureRequest
) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
    newest = validator.latest_version()
    subject: Subject = request.getfixturevalue(lock)
    files = render_cluster(subject, CASES[name], matrix)
    seen = set()
    for document in documents(files):
        seen.add(document["kind"])
        if document["kind"] not in ("JobSet", "PyTorchJob"):
            validator.validate(document, newest, strict=True)
            continue
        assert find_faults(document["kind"].lower(), document, matrix) == ()
        for pod in pods_in([document]):
            # Pods inside custom resources get the check that Kubernetes makes once they are Pods.
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
            validator.validate(body, newest, strict=True)
    assert {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy", "Job"} <= seen


def test_the_validator_sees_a_key_that_is_not_there(image_lock: Subject, matrix: Matrix) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
    job = load(render_cluster(image_lock, FULL, matrix), "verify.yaml")
    job["spec"]["backofLimit"] = 1
    with pytest.raises(validator.utils.ValidationError):
        validator.validate(job, validator.latest_version(), strict=True)


@pytest.mark.parametrize("name", CASES)
def test_every_job_asks_for_the_resource_that_is_offered(name: str, image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(image_lock, CASES[name], matrix)
    for pod in pods(files):
        for container in pod["containers"]:
            limits = container["resources"]["limits"]
            assert files.resource in limits
            assert container["resources"]["requests"] == limits
            assert len([key for key in limits if key.startswith("nvidia.com/")]) == 1


def test_shared_memory_lies_inside_the_limit_of_memory(image_lock: Subject, matrix: Matrix) -> None:
    for pod in pods(render_cluster(image_lock, FULL, matrix)):
        size = int(pod["volumes"][0]["emptyDir"]["sizeLimit"].removesuffix("Gi"))
        memory = int(pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("Gi"))
        gpus = int(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        assert size == gpus
        assert memory > size


def test_nodes_with_a_driver_get_the_plugin_alone(node_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(node_lock, FULL, matrix)
    paths = [artifact.path for artifact in files.artifacts]
    assert "device-plugin.yaml" in paths
    assert "gpu-operator-values.yaml" not in paths
    (daemon,) = [document for document in documents(files) if document["kind"] == "DaemonSet"]
    selector = daemon["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"feature.node.kubernetes.io/provision-driver-owner": "node"}
    assert all(pod["nodeSelector"] == selector for pod in pods(files))


@pytest.mark.parametrize(("name", "sees_all"), [("shared", False), ("mig", True)])
def test_a_plugin_may_no_more_than_its_devices_need(
    name: str, sees_all: bool, node_lock: Subject, matrix: Matrix
) -> None:
    files = render_cluster(node_lock, CASES[name], matrix)
    (daemon,) = [document for document in documents(files) if document["kind"] == "DaemonSet"]
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    assert ({"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"} in container["env"]) is sees_all
    assert ("add" in container["securityContext"]["capabilities"]) is sees_all


def test_the_label_is_the_one_that_the_role_writes() -> None:
    from provision.assets import asset_dir

    role = (asset_dir("playbooks") / "roles" / "gpu_k8s" / "vars" / "main.yml").read_text(encoding="utf-8")
    assert 'provision-driver-owner: "{{ gpu_k8s_driver_owner }}"' in role


def test_the_operator_gets_the_image_of_the_branch(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(image_lock, FULL, matrix)
    driver = load(files, "gpu-operator-values.yaml")["driver"]
    assert driver["version"] == matrix.driver_images[-1].version
    assert driver["kernelModuleType"] == "open"
    assert not any("nodeSelector" in pod for pod in pods(files))


def test_gpus_that_differ_leave_the_module_to_the_operator(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(replace(image_lock, gpus=("H100", "V100")), FULL, matrix)
    assert load(files, "gpu-operator-values.yaml")["driver"]["kernelModuleType"] == "auto"


def test_one_driver_floor_changes_the_values(image_lock: Subject, matrix: Matrix) -> None:
    newest = matrix.driver_images[0]
    files = render_cluster(replace(image_lock, driver_branch=str(newest.branch)), FULL, matrix)
    assert load(files, "gpu-operator-values.yaml")["driver"]["version"] == newest.version


def test_a_quota_counts_every_kind_of_gpu(image_lock: Subject, matrix: Matrix) -> None:
    quota = [item for item in documents(render_cluster(image_lock, SHARED, matrix)) if item["kind"] == "ResourceQuota"]
    assert [item["spec"]["hard"] for item in quota] == [
        {"requests.nvidia.com/gpu": "0", "requests.nvidia.com/gpu.shared": "0"},
        {"requests.nvidia.com/gpu": "0", "requests.nvidia.com/gpu.shared": "8"},
    ]


def test_a_tenant_hears_nobody_else_and_finds_names(image_lock: Subject, matrix: Matrix) -> None:
    items = [item for item in documents(render_cluster(image_lock, FULL, matrix)) if item["kind"] == "NetworkPolicy"]
    mine = {item["metadata"]["name"]: item["spec"] for item in items if item["metadata"]["namespace"] == "vision"}
    assert mine["deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert mine["own-namespace"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert [port["port"] for port in mine["names"]["egress"][0]["ports"]] == [53, 53]
    assert "ingress" not in mine["names"]


def test_a_jobset_meets_at_its_first_pod(image_lock: Subject, matrix: Matrix) -> None:
    document = load(render_cluster(image_lock, FULL, matrix), "train.yaml")
    spec = document["spec"]
    worker = spec["replicatedJobs"][0]
    name = f"{document['metadata']['name']}-{worker['name']}-0-0.{spec['network']['subdomain']}"
    pod = worker["template"]["spec"]["template"]["spec"]
    assert f"--rdzv-endpoint={name}:29500" in pod["containers"][0]["command"]
    assert worker["template"]["spec"]["completions"] == 2


def test_a_plain_job_trains_on_one_pod_alone(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="one Pod"):
        render_cluster(image_lock, replace(FULL, runner="job"), matrix)


def test_variables_of_the_facts_come_with_those_of_a_person(image_lock: Subject, matrix: Matrix) -> None:
    def env(nccl: str) -> dict[str, str]:
        subject = replace(image_lock, libraries={"nccl": nccl})
        document = load(render_cluster(subject, FULL, matrix), "compose.yaml")
        return dict(document["services"]["train"]["environment"])

    assert env("2.26.2") == {"NCCL_CUMEM_HOST_ENABLE": "0", "WANDB_MODE": "offline"}
    assert env("2.26.5") == {"WANDB_MODE": "offline"}


def test_compose_keeps_a_dollar(image_lock: Subject, matrix: Matrix) -> None:
    options = replace(FULL, script=("train.py", "$HOME"))
    service = load(render_cluster(image_lock, options, matrix), "compose.yaml")["services"]["train"]
    assert service["command"][-1] == "$$HOME"
    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": 8, "capabilities": ["gpu"]}
    ]


def test_the_same_request_gives_the_same_bytes(image_lock: Subject, matrix: Matrix) -> None:
    assert render_cluster(image_lock, FULL, matrix) == render_cluster(image_lock, FULL, Matrix())


def test_every_file_names_its_lock(image_lock: Subject, matrix: Matrix) -> None:
    for artifact in render_cluster(image_lock, FULL, matrix).artifacts:
        assert f"# provision.lock {image_lock.digest};" in artifact.text
