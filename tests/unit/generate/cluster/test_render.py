"""Whole folders: core objects against Kubernetes' own schemas, the rest against the published definitions."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.errors import ProvisionError, UnknownError, UsageError
from provision.generate.cluster.options import ClusterOptions, Place, Tenant, WarmUp
from provision.generate.cluster.render import ClusterFiles, render_cluster
from provision.generate.cluster.shapes import find_faults, shape_of
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.records import replace

IMAGE = "registry.example/team/train:1"
FULL = ClusterOptions(
    image=IMAGE,
    nccl_tests_image="registry.example/team/nccl:1",
    namespace="vision",
    script=("train.py", "--lr", "1e-3"),
    nodes=2,
    gpus=8,
    cpus=16,
    tenants=(Tenant(name="speech", gpus=0), Tenant(name="vision", gpus=16)),
    variables={"WANDB_MODE": "offline"},
)
SHARED = replace(FULL, nodes=1, gpus=1, runner="job", sharing="time-slicing", replicas=4)
SERVED = ClusterOptions(
    image=IMAGE,
    runner="deployment",
    script=("vllm", "serve", "model"),
    tenants=(Tenant(name="web", gpus=9),),
    warm_up=WarmUp(path="/v1/completions", body='{"prompt": "x"}'),
)
MIG = replace(SHARED, sharing="none", replicas=None, mig_strategy="mixed", mig_profile="1g.10gb")
CASES = {
    "jobset": FULL,
    "trainjob": replace(FULL, runner="trainjob"),
    "one Pod": replace(FULL, runner="job", nodes=1),
    "shared": SHARED,
    "mps": replace(SHARED, sharing="mps"),
    "mig": MIG,
    "mig of one kind": replace(MIG, mig_strategy="single"),
    "claimed": replace(FULL, is_claimed=True),
    "rdma": replace(FULL, rdma=("rdma/hca", 8), volumes=(("d", "/data"),), existing=("PersistentVolumeClaim/d",)),
    "rayjob": replace(FULL, runner="rayjob"),
    "raycluster": replace(FULL, runner="raycluster", script=()),
    "rayservice": replace(FULL, runner="rayservice", script=("app:deployment",)),
    "scaled ray": replace(FULL, runner="raycluster", script=(), nodes=1, scale=(0, 2), idle_seconds=600),
    "service": SERVED,
    "stored": replace(FULL, data=Place(scheme="s3", path="sets/a"), checkpoints=Place(scheme="s3", path="runs/a")),
}
WATCHED = {
    "watched": replace(FULL, cluster="prod", runbooks="https://docs.example/runbooks"),
    "queued": replace(FULL, is_queued=True),
    "queued rdma": replace(FULL, is_queued=True, rdma=("rdma/hca", 8)),
    "healed": replace(FULL, has_health=True),
    "pooled": replace(FULL, node_class=("EC2NodeClass", "karpenter.k8s.aws", "gpu")),
    "scaled": replace(SERVED, cluster="prod", scale=(1, 8), prometheus="http://prometheus.monitoring:9090"),
}
NO_OBJECTS = ("gpu-operator-values.yaml", "compose.yaml", "kustomization.yaml")
WAITS = "kueue.x-k8s.io/queue-name"


def documents(files: ClusterFiles) -> Iterator[dict[str, Any]]:
    for artifact in files.artifacts:
        if artifact.path not in NO_OBJECTS:
            yield from yaml.safe_load_all(artifact.text)


def load(files: ClusterFiles, path: str, kind: str | None = None) -> Any:
    (text,) = [artifact.text for artifact in files.artifacts if artifact.path == path]
    return next(row for row in yaml.safe_load_all(text) if kind in (None, row.get("kind")))


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


def one_model(lock: Subject) -> Subject:
    return replace(lock, gpus=("h100-sxm5-80gb",))


@pytest.mark.parametrize(
    ("name", "lock"),
    [*((name, "image_lock") for name in (*CASES, *WATCHED)), *((name, "node_lock") for name in CASES if name != "mps")],
)
def test_every_object_is_what_its_server_takes(
    name: str, lock: str, matrix: Matrix, request: pytest.FixtureRequest
) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
    newest = validator.latest_version()
    files = render_cluster(one_model(request.getfixturevalue(lock)), {**CASES, **WATCHED}[name], matrix)
    seen = set()
    for document in documents(files):
        seen.add(document["kind"])
        shape = shape_of(document, matrix)
        if shape is None:
            validator.validate(document, newest, strict=True)
            continue
        assert find_faults(shape, document, matrix) == ()
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


@pytest.mark.parametrize("name", [*CASES, *WATCHED])
def test_every_flag_adds_its_kinds_and_no_others(name: str, image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(one_model(image_lock), {**CASES, **WATCHED}[name], matrix)
    kinds = {row["kind"] for row in documents(files)}
    asked = {
        "JobSet": name
        in ("jobset", "rdma", "watched", "queued", "queued rdma", "healed", "pooled", "claimed", "stored"),
        "TrainJob": name == "trainjob",
        "TrainingRuntime": name == "trainjob",
        "RayJob": name == "rayjob",
        "RayCluster": name in ("raycluster", "scaled ray"),
        "RayService": name == "rayservice",
        "Deployment": name in ("service", "scaled"),
        "Service": name in ("service", "scaled"),
        "PodDisruptionBudget": name in ("service", "scaled"),
        "ScaledObject": name == "scaled",
        "ServiceMonitor": name in ("watched", "scaled"),
        "PrometheusRule": name in ("watched", "scaled"),
        "ConfigMap": name in ("watched", "scaled", "healed"),
        **dict.fromkeys(
            ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "DaemonSet", "PodTemplate"),
            name == "healed",
        ),
        "ClusterQueue": name.startswith("queued"),
        "LocalQueue": name.startswith("queued"),
        "ResourceFlavor": name.startswith("queued"),
        "NodePool": name == "pooled",
        "ResourceClaimTemplate": name == "claimed",
    }
    base = {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy", "Job"}
    assert kinds - base == {kind for kind, is_asked in asked.items() if is_asked}


@pytest.mark.parametrize("name", [*CASES, *WATCHED])
def test_the_order_of_the_files_is_one_that_kubectl_takes(name: str, image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(one_model(image_lock), {**CASES, **WATCHED}[name], matrix)
    assert load(files, "kustomization.yaml")["resources"] == list(files.applied)
    assert [line for line in files.commands if "apply" in line] == [
        f"kubectl apply -f {path}" for path in files.applied
    ]
    paths = {artifact.path for artifact in files.artifacts}
    assert set(files.applied) == paths - set(NO_OBJECTS)
    work = next(path for path in files.applied if path in ("train.yaml", "serve.yaml", "ray.yaml"))
    assert files.applied[-1] == work


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", [*CASES, *WATCHED])
def test_kustomize_builds_the_folder_and_loses_nothing(
    name: str, image_lock: Subject, matrix: Matrix, tmp_path: Path
) -> None:
    files = render_cluster(one_model(image_lock), {**CASES, **WATCHED}[name], matrix)
    for artifact in files.artifacts:
        (tmp_path / artifact.path).write_text(artifact.text, encoding="utf-8")
    done = subprocess.run(["kubectl", "kustomize", "."], cwd=tmp_path, capture_output=True, text=True, check=True)
    built = list(yaml.safe_load_all(done.stdout))
    key = lambda row: (row["kind"], row["metadata"].get("namespace", ""), row["metadata"]["name"])  # noqa: E731
    assert sorted(map(key, built)) == sorted(map(key, documents(files)))
    assert built[0]["kind"] == "Namespace"


@pytest.mark.parametrize("name", CASES)
def test_every_container_with_gpus_asks_for_the_resource_that_is_offered(
    name: str, image_lock: Subject, matrix: Matrix
) -> None:
    files = render_cluster(image_lock, CASES[name], matrix)
    for pod in pods(files):
        for container in pod["containers"]:
            limits = container["resources"]["limits"]
            assert container["resources"]["requests"] == limits
            mine = [key for key in limits if key.startswith("nvidia.com/")]
            if container["name"] == "ray-head":
                assert mine == []
            elif name == "claimed":
                assert mine == []
                assert container["resources"]["claims"] == [{"name": pod["resourceClaims"][0]["name"]}]
            else:
                assert mine == [files.resource]


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
    assert files.applied[0] == "device-plugin.yaml"
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
    container = daemon["spec"]["template"]["spec"]["containers"][0]
    assert container["name"] == "device-plugin"
    assert ({"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"} in container["env"]) is sees_all
    assert ("add" in container["securityContext"]["capabilities"]) is sees_all


def test_claims_need_no_plugin_and_products_are_said_nonetheless(node_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(node_lock, CASES["claimed"], matrix)
    (daemon,) = [document for document in documents(files) if document["kind"] == "DaemonSet"]
    assert [row["name"] for row in daemon["spec"]["template"]["spec"]["containers"]] == ["gpu-feature-discovery"]


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


def test_work_is_bound_to_the_product_of_the_lock(image_lock: Subject, matrix: Matrix) -> None:
    for pod in pods(render_cluster(one_model(image_lock), FULL, matrix)):
        terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms == [
            {
                "matchExpressions": [
                    {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}
                ]
            }
        ]


def test_work_for_a_gpu_whose_label_is_not_known_is_not_bound_and_that_is_said(
    image_lock: Subject, matrix: Matrix
) -> None:
    files = render_cluster(replace(image_lock, gpus=("v100",)), FULL, matrix)
    assert not any("affinity" in pod for pod in pods(files))
    assert any("is not known: work is not bound" in line for line in files.warnings)


def test_gpus_are_cut_where_nodes_have_the_label_that_chooses_the_layout(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(one_model(image_lock), CASES["mig of one kind"], matrix)
    manager = load(files, "gpu-operator-values.yaml")["migManager"]
    layouts = yaml.safe_load(manager["config"]["data"]["config.yaml"])["mig-configs"]
    (label,) = [line for line in files.commands if line.startswith("kubectl label")]
    name = label.split("nvidia.com/mig.config=")[1].split()[0]
    assert layouts[name] == [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]
    assert manager["config"]["default"] in layouts
    # Once cut they have another product, and the same command still finds them.
    assert "NVIDIA-H100-80GB-HBM3,NVIDIA-H100-80GB-HBM3-MIG-1g.10gb" in label
    assert files.commands.index(label) == 1


def test_nodes_that_own_their_driver_are_cut_by_their_play_and_that_is_said(node_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(node_lock, MIG, matrix)
    assert not any("kubectl label" in line for line in files.commands)
    assert any("gpu_mig_profile: all-1g.10gb" in line for line in files.warnings)


def test_a_quota_counts_every_kind_of_gpu(image_lock: Subject, matrix: Matrix) -> None:
    quota = [item for item in documents(render_cluster(image_lock, SHARED, matrix)) if item["kind"] == "ResourceQuota"]
    assert [item["spec"]["hard"] for item in quota] == [
        {"requests.nvidia.com/gpu": "0", "requests.nvidia.com/gpu.shared": "0"},
        {"requests.nvidia.com/gpu": "0", "requests.nvidia.com/gpu.shared": "16"},
    ]


def test_limits_of_a_tenant_do_not_hold_back_work_with_gpus(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(image_lock, replace(FULL, cpus=None), matrix)
    (limit,) = load(files, "tenant-vision.yaml", "LimitRange")["spec"]["limits"]
    assert "cpu" not in limit["default"]
    assert not any("cpu" in pod["containers"][0]["resources"]["limits"] for pod in pods(files))


def test_a_tenant_hears_nobody_else_and_finds_names(image_lock: Subject, matrix: Matrix) -> None:
    items = [item for item in documents(render_cluster(image_lock, FULL, matrix)) if item["kind"] == "NetworkPolicy"]
    mine = {item["metadata"]["name"]: item["spec"] for item in items if item["metadata"]["namespace"] == "vision"}
    assert mine["deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert mine["own-namespace"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert [port["port"] for port in mine["names"]["egress"][0]["ports"]] == [53, 53]
    assert "ingress" not in mine["names"]


def test_ray_is_heard_by_its_operator_and_another_tenant_is_not(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(image_lock, CASES["rayjob"], matrix)
    opened = [row for row in documents(files) if row["metadata"]["name"] == "ray-operator"]
    assert [row["metadata"]["namespace"] for row in opened] == ["vision"]


def test_two_monitors_are_on_two_nodes_and_what_their_owner_set_stays(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(image_lock, replace(WATCHED["watched"], monitors=2), matrix)
    document = load(files, "kube-prometheus-stack-values.yaml")
    for name, spec in (("prometheus", "prometheusSpec"), ("alertmanager", "alertmanagerSpec")):
        assert (document[name][spec]["replicas"], document[name][spec]["podAntiAffinity"]) == (2, "hard")
        assert document[name]["podDisruptionBudget"] == {"enabled": True, "minAvailable": 1}
    (command,) = [row for row in files.commands if "kube-prometheus-stack-values.yaml" in row]
    assert "--version REPLACE-WITH-VERSION-OF-THE-RELEASE --reuse-values" in command
    assert "kube-prometheus-stack-values.yaml" not in files.applied


def test_ray_scales_within_bounds_and_knows_its_version(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(replace(image_lock, ray="2.60.0"), CASES["scaled ray"], matrix)
    spec = load(files, "ray.yaml")["spec"]
    assert (spec["rayVersion"], spec["enableInTreeAutoscaling"]) == ("2.60.0", True)
    assert spec["autoscalerOptions"]["idleTimeoutSeconds"] == 600
    (group,) = spec["workerGroupSpecs"]
    assert [group[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [0, 0, 2]
    assert spec["headGroupSpec"]["template"]["spec"]["automountServiceAccountToken"] is True
    assert files.warnings == ()
    fixed = load(render_cluster(image_lock, CASES["raycluster"], matrix), "ray.yaml")["spec"]
    assert not {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions"} & set(fixed)


def test_a_cluster_of_other_bounds_has_another_name(image_lock: Subject, matrix: Matrix) -> None:
    asked = [replace(CASES["scaled ray"], scale=scale, idle_seconds=None) for scale in (None, (1, 1), (0, 2))]
    assert len({render_cluster(image_lock, options, matrix).name for options in asked}) == 3


def test_the_image_of_a_ray_cluster_must_have_ray(image_lock: Subject, matrix: Matrix) -> None:
    (said,) = render_cluster(image_lock, CASES["raycluster"], matrix).warnings
    assert "--with ray" in said


UP = replace(FULL, runner="raycluster", script=(), nodes=1, cpus=None, scale=(1, 4), idle_seconds=600)


@pytest.mark.parametrize(
    "machine",
    [
        ("aws", "p5.48xlarge", "us-east-1"),
        ("azure", "Standard_ND96isr_H100_v5", ""),
        ("gcp", "a3-highgpu-8g", "us-central1"),
    ],
)
def test_ray_up_takes_what_is_written_for_machines(
    machine: tuple[str, str, str], image_lock: Subject, matrix: Matrix
) -> None:
    """Ray itself reads such a file in tests/cli/test_verify_ray.py."""
    options = replace(UP, tenants=(Tenant(name="vision", gpus=32),), machine=machine)
    files = render_cluster(one_model(image_lock), options, matrix)
    document = load(files, "ray-up.yaml")
    assert "ray-up.yaml" not in files.applied
    assert document["docker"]["image"] == IMAGE
    worker = document["available_node_types"]["gpu"]
    assert (worker["min_workers"], worker["max_workers"], document["max_workers"]) == (1, 4, 4)
    assert (worker["resources"], document["idle_timeout_minutes"]) == ({"GPU": 8}, 10)
    assert machine[1] in str(worker["node_config"])
    docker = document["docker"]
    head = [word for word in docker["head_run_options"] if word.startswith("--env=")]
    assert "--env=WANDB_MODE=offline" in head
    assert head == [word for word in docker["worker_run_options"] if word.startswith("--env=")]
    assert "pip install" not in str(document)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (("tencent", "GN7.2XLARGE32", ""), "starts no machines of tencent"),
        (("aws", "p9.48xlarge", ""), "no aws p9.48xlarge is known"),
        (("aws", "p4d.24xlarge", "us-east-1"), "the lock is for h100-sxm5-80gb"),
        (("aws", "p5.4xlarge", ""), "p5.4xlarge has 1 GPUs, and --gpus says 8"),
    ],
)
def test_ray_up_gets_no_machine_that_is_another(
    machine: tuple[str, str, str], said: str, image_lock: Subject, matrix: Matrix
) -> None:
    with pytest.raises(ProvisionError, match=said):
        render_cluster(
            one_model(image_lock), replace(UP, tenants=(Tenant(name="vision", gpus=32),), machine=machine), matrix
        )


def test_locked_memory_needs_a_namespace_that_lets_it(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(image_lock, CASES["rdma"], matrix)
    levels = {
        row["metadata"]["name"]: row["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for row in documents(files)
        if row["kind"] == "Namespace"
    }
    assert levels == {"speech": "baseline", "vision": "privileged"}
    container = next(pods_in([load(files, "train.yaml")]))["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert container["resources"]["limits"]["rdma/hca"] == "8"


@pytest.mark.parametrize("lock", ["image_lock", "node_lock"])
def test_who_takes_nodes_out_may_make_no_privileged_pod(
    lock: str, matrix: Matrix, request: pytest.FixtureRequest
) -> None:
    files = render_cluster(request.getfixturevalue(lock), WATCHED["healed"], matrix)
    rows = [row for row in documents(files) if row]
    levels = {
        row["metadata"]["name"]: row["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
        for row in rows
        if row["kind"] == "Namespace"
    }
    (account,) = (row["subjects"][0] for row in rows if row["kind"] == "RoleBinding")
    (role,) = (row for row in rows if row["kind"] == "Role")
    assert any("pods" in rule["resources"] and "create" in rule["verbs"] for rule in role["rules"])
    space = role["metadata"]["namespace"]
    assert levels[space] == "baseline"
    accounts = {
        row["metadata"]["name"]
        for row in rows
        if row["kind"] == "ServiceAccount" and row["metadata"]["namespace"] == space
    }
    # One that makes Pods can have them run as any account of the namespace.
    assert accounts == {account["name"]}
    (proof,) = (row["template"]["spec"] for row in rows if row["kind"] == "PodTemplate")
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(proof)
    assert all("hostPath" not in volume for volume in proof["volumes"])
    assert [row["securityContext"] for row in proof["containers"]] == [
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    ]
    (watch,) = (
        row for row in rows if row["kind"] == "DaemonSet" and row["metadata"]["name"] == "node-problem-detector"
    )
    assert levels[watch["metadata"]["namespace"]] == "privileged"


def test_a_jobset_meets_at_its_first_pod(image_lock: Subject, matrix: Matrix) -> None:
    document = load(render_cluster(image_lock, FULL, matrix), "train.yaml")
    spec = document["spec"]
    worker = spec["replicatedJobs"][0]
    name = f"{document['metadata']['name']}-{worker['name']}-0-0.{spec['network']['subdomain']}"
    pod = worker["template"]["spec"]["template"]["spec"]
    assert f"--rdzv-endpoint={name}:29500" in pod["containers"][0]["command"]
    assert worker["template"]["spec"]["completions"] == 2


def test_a_trainjob_runs_a_runtime_of_its_own(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(image_lock, CASES["trainjob"], matrix)
    runtime, job = (load(files, "train.yaml", kind) for kind in ("TrainingRuntime", "TrainJob"))
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert job["spec"]["trainer"] == {"numNodes": 2, "numProcPerNode": 8}
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    # By these names the trainer finds the container that it sets the variables of torchrun in.
    assert replicated["name"] == "node"
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert replicated["template"]["spec"]["template"]["spec"]["containers"][0]["name"] == "node"


def test_work_waits_in_the_queue_of_its_tenant(image_lock: Subject, matrix: Matrix) -> None:
    files = render_cluster(one_model(image_lock), WATCHED["queued"], matrix)
    for path in ("train.yaml", "verify.yaml", "nccl-tests.yaml"):
        assert load(files, path)["metadata"]["labels"][WAITS] == "vision"
    assert load(files, "queues.yaml", "ResourceFlavor")["spec"] == {
        "nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    }


def test_a_service_is_ready_after_its_first_answer_and_ends_after_its_last(image_lock: Subject, matrix: Matrix) -> None:
    deployment = load(render_cluster(image_lock, SERVED, matrix), "serve.yaml", "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = container["startupProbe"]["exec"]["command"]
    assert command[-2:] == ["http://127.0.0.1:8000/v1/completions", '{"prompt": "x"}']
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] < pod["terminationGracePeriodSeconds"]
    assert container["startupProbe"]["timeoutSeconds"] > 50, "the request has fifty seconds of its own"


@pytest.mark.parametrize(("share", "surge"), [(9, 1), (8, 0)])
def test_a_pod_more_is_made_first_only_where_the_share_has_room(
    share: int, surge: int, image_lock: Subject, matrix: Matrix
) -> None:
    options = replace(SERVED, nodes=8, tenants=(Tenant(name="web", gpus=share),))
    spec = load(render_cluster(image_lock, options, matrix), "serve.yaml", "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": surge, "maxUnavailable": 1 - surge}


def test_a_pool_makes_machines_that_have_the_gpu_and_enough_of_them(image_lock: Subject, matrix: Matrix) -> None:
    pool = load(render_cluster(one_model(image_lock), WATCHED["pooled"], matrix), "nodepool.yaml")
    (requirement,) = pool["spec"]["template"]["spec"]["requirements"]
    rows = {row.type: row for row in matrix.rows("cloud/instances.toml", "instance") if row.provider == "aws"}
    assert requirement["values"]
    assert {rows[name].gpu for name in requirement["values"]} == {"h100-sxm5-80gb"}
    assert all(rows[name].gpu_count >= 8 for name in requirement["values"])
    assert pool["spec"]["limits"] == {"nvidia.com/gpu": "16"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sharing": "time-slicing", "replicas": 2, "gpus": 1, "nodes": 1}, UsageError),
        ({"node_class": ("NodeClass", "karpenter.example", "x")}, UnknownError),
        ({"gpus": 16, "tenants": (Tenant(name="vision", gpus=32),)}, UnknownError),
    ],
)
def test_a_pool_that_would_make_no_node_is_refused(
    change: dict[str, Any], error: type[Exception], image_lock: Subject, matrix: Matrix
) -> None:
    with pytest.raises(error):
        render_cluster(one_model(image_lock), replace(WATCHED["pooled"], **change), matrix)


def test_a_pool_for_a_family_is_refused(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="one product"):
        render_cluster(image_lock, WATCHED["pooled"], matrix)


def test_monitoring_is_for_who_runs_an_exporter(node_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="GPU Operator"):
        render_cluster(node_lock, WATCHED["watched"], matrix)


def test_a_plain_job_trains_on_one_pod_alone(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="one Pod"):
        render_cluster(image_lock, replace(FULL, runner="job"), matrix)


@pytest.mark.parametrize(
    "change",
    [{"script": ("train.py", "--lr", "1e-4")}, {"nodes": 1}, {"image": f"{IMAGE}2"}, {"variables": {"A": "1"}}],
)
def test_other_work_has_another_name_and_the_same_work_the_same(
    change: dict[str, Any], image_lock: Subject, matrix: Matrix
) -> None:
    one = render_cluster(image_lock, FULL, matrix).name
    assert re.fullmatch(r"train-[0-9a-f]{8}", one)
    assert render_cluster(image_lock, replace(FULL, **change), matrix).name != one
    assert render_cluster(image_lock, replace(FULL, cluster="prod"), matrix).name == one
    assert render_cluster(replace(image_lock, digest="sha256:" + "d" * 64), FULL, matrix).name != one
    assert render_cluster(image_lock, replace(FULL, name="mine"), matrix).name == "mine"


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


@pytest.mark.parametrize("name", [*CASES, *WATCHED])
def test_the_same_request_gives_the_same_bytes(name: str, image_lock: Subject, matrix: Matrix) -> None:
    options, subject = {**CASES, **WATCHED}[name], one_model(image_lock)
    assert render_cluster(subject, options, matrix) == render_cluster(subject, options, Matrix())


def test_every_file_names_its_lock(image_lock: Subject, matrix: Matrix) -> None:
    for artifact in render_cluster(image_lock, FULL, matrix).artifacts:
        assert f"# provision.lock {image_lock.digest};" in artifact.text
