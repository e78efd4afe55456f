"""Each contradiction has a bundle without it, a change that brings it in, and a sentence that names both sides."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from provision.errors import IncompatibleError
from provision.generate.cluster.admission import RULES, Contradiction, judge
from provision.generate.cluster.options import ClusterOptions, Place, Tenant, WarmUp
from provision.generate.cluster.render import render_cluster
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.records import replace

IMAGE = "registry.example/team/train:1"
TRAIN = ClusterOptions(
    image=IMAGE,
    name="train",
    script=("train.py",),
    nodes=2,
    gpus=8,
    tenants=(Tenant(name="vision", gpus=16),),
    is_queued=True,
    cluster="prod",
    node_class=("EC2NodeClass", "karpenter.k8s.aws", "gpu"),
    volumes=(("datasets", "/data"),),
    secrets=("hub",),
    priority="batch",
    existing=("PersistentVolumeClaim/datasets", "PriorityClass/batch", "Secret/hub"),
)
SERVE = ClusterOptions(
    image=IMAGE,
    name="chat",
    runner="deployment",
    script=("vllm", "serve", "model"),
    tenants=(Tenant(name="web", gpus=9),),
    cluster="prod",
    warm_up=WarmUp(path="/v1/models"),
    scale=(1, 8),
    prometheus="http://prometheus.monitoring:9090",
)
MIG = ClusterOptions(image=IMAGE, name="part", mig_strategy="mixed", mig_profile="1g.10gb")
SINGLE = replace(MIG, mig_strategy="single")
SHARED = ClusterOptions(image=IMAGE, name="slice", sharing="time-slicing", replicas=4)
CLAIMED = ClusterOptions(
    image=IMAGE, name="claim", is_claimed=True, tenants=(Tenant(name="lab", gpus=4),), gpus=4, script=("train.py",)
)
RAY = ClusterOptions(
    image=IMAGE,
    name="ray",
    runner="rayjob",
    script=("train.py",),
    nodes=2,
    gpus=4,
    tenants=(Tenant(name="lab", gpus=9),),
)
SCALED = replace(RAY, name="scaled", runner="raycluster", script=(), nodes=1, scale=(0, 2), idle_seconds=300)
STORED = replace(RAY, name="stored", runner="jobset", data=Place(scheme="s3", path="sets/a"))
TRAINER = ClusterOptions(image=IMAGE, name="tune", runner="trainjob", script=("train.py",), nodes=2, gpus=4)
RDMA = replace(TRAIN, rdma=("rdma/hca", 1))
HEALTH = ClusterOptions(image=IMAGE, name="check", has_health=True)
BUNDLES = {
    "train": TRAIN,
    "serve": SERVE,
    "mig": MIG,
    "single": SINGLE,
    "shared": SHARED,
    "claimed": CLAIMED,
    "ray": RAY,
    "scaled ray": SCALED,
    "stored": STORED,
    "trainer": TRAINER,
    "rdma": RDMA,
    "nodes": replace(SHARED, owner="node"),
    "health": HEALTH,
    "health of nodes": replace(HEALTH, owner="node"),
}

Files = dict[str, list[dict[str, Any]]]
Change = Callable[[Files], None]


def load(subject: Subject, options: ClusterOptions, matrix: Matrix) -> Files:
    """Read the files back as --judge reads them."""
    files = render_cluster(replace(subject, gpus=("h100-sxm5-80gb",)), options, matrix).artifacts
    return {item.path: list(yaml.safe_load_all(item.text)) for item in files}


def judged(files: Files, matrix: Matrix, existing: tuple[str, ...] = ()) -> tuple[Contradiction, ...]:
    pairs = [(path, document) for path, documents in files.items() for document in documents]
    return judge(pairs, existing=frozenset(existing), matrix=matrix)


def get(files: Files, kind: str, path: str | None = None) -> dict[str, Any]:
    """Return the first object of a kind."""
    return next(
        document
        for name, documents in files.items()
        for document in documents
        if document.get("kind") == kind and path in (None, name)
    )


def pod(files: Files, kind: str) -> dict[str, Any]:
    spec = get(files, kind)["spec"]
    if kind == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def values(files: Files) -> dict[str, Any]:
    return files["gpu-operator-values.yaml"][0]


def resources(files: Files, kind: str, **change: str) -> None:
    for side in ("limits", "requests"):
        pod(files, kind)["containers"][0]["resources"][side] |= {
            key.replace("__", "/"): item for key, item in change.items()
        }


def terms(files: Files, kind: str) -> dict[str, Any]:
    affinity = pod(files, kind)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: dict[str, Any] = affinity["nodeSelectorTerms"][0]["matchExpressions"][0]
    return found


def workers(files: Files) -> dict[str, Any]:
    found: dict[str, Any] = get(files, "RayCluster")["spec"]["workerGroupSpecs"][0]
    return found


def without(files: Files, path: str, name: str) -> None:
    files[path][:] = [row for row in files[path] if row["metadata"]["name"] != name]


def _policy(files: Files) -> None:
    without(files, "tenant-lab.yaml", "ray-operator")


def _unlabelled(files: Files) -> None:
    end = get(files, "ServiceMonitor")["spec"]["endpoints"][0]
    end["relabelings"] = [row for row in end["relabelings"] if row.get("targetLabel") != "node"]


def _plugin_beside(files: Files) -> None:
    container = {"name": "x", "image": "nvcr.io/nvidia/k8s-device-plugin:v1"}
    spec = {"template": {"spec": {"containers": [container]}}}
    head = {"name": "plugin", "namespace": "kube-system"}
    files["device-plugin.yaml"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": head, "spec": spec}]
    get(files, "Kustomization")["resources"].append("device-plugin.yaml")


def _claiming(files: Files) -> None:
    pod(files, "Job")["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]


def _plugin(files: Files, change: Callable[[dict[str, Any]], None]) -> None:
    data = get(files, "ConfigMap", "health.yaml")["data"]
    plugin = json.loads(data["gpu-monitor.json"])
    change(plugin)
    data["gpu-monitor.json"] = json.dumps(plugin)


# Rule, bundle, what is done to it, and words of both sides.
TABLE: list[tuple[str, str, Change, tuple[str, ...]]] = [
    (
        "form",
        "train",
        lambda f: get(f, "JobSet")["spec"].update(ttl=1),
        ("JobSet vision/train", "`spec.ttl` is not a key"),
    ),
    ("form", "train", lambda f: values(f)["driver"].update(rdma=True), ("`driver.rdma` takes keys",)),
    (
        "one-name",
        "train",
        lambda f: f["verify.yaml"].append(copy.deepcopy(get(f, "JobSet"))),
        ("JobSet vision/train", "replaces the first"),
    ),
    (
        "namespace",
        "train",
        lambda f: f["tenant-vision.yaml"].pop(0),
        ("lies in a namespace that nothing makes", "--existing Namespace/vision"),
    ),
    (
        "reference",
        "train",
        lambda f: pod(f, "JobSet")["volumes"][1]["persistentVolumeClaim"].update(claimName="lost"),
        ("PersistentVolumeClaim lost", "--existing PersistentVolumeClaim/lost"),
    ),
    (
        "reference",
        "train",
        lambda f: pod(f, "JobSet")["containers"][0].update(envFrom=[{"secretRef": {"name": "lost"}}]),
        ("Secret lost",),
    ),
    (
        "reference",
        "train",
        lambda f: pod(f, "JobSet")["volumes"].append({"name": "c", "configMap": {"name": "lost"}}),
        ("ConfigMap lost",),
    ),
    (
        "account",
        "health",
        lambda f: get(f, "ClusterRoleBinding")["subjects"][0].update(name="lost"),
        ("ClusterRoleBinding provision-health-watch is about ServiceAccount lost",),
    ),
    (
        "account",
        "health",
        lambda f: get(f, "RoleBinding")["roleRef"].update(name="lost"),
        ("RoleBinding provision-health/provision-health is about Role lost",),
    ),
    (
        "watch-plugin",
        "health",
        lambda f: get(f, "ConfigMap", "health.yaml")["data"].pop("gpu-monitor.json"),
        ("DaemonSet provision-health-watch/node-problem-detector", "gpu-monitor.json is in no ConfigMap"),
    ),
    (
        "watch-plugin",
        "health",
        lambda f: get(f, "ConfigMap", "health.yaml")["data"].pop("check_gpus.sh"),
        ("gpu-monitor.json runs /etc/provision-health/check_gpus.sh, which is in no ConfigMap",),
    ),
    (
        "watch-plugin",
        "health",
        lambda f: pod(f, "DaemonSet")["volumes"][0]["configMap"].pop("defaultMode"),
        ("a mode that lets nobody run it",),
    ),
    (
        "watch-plugin",
        "health",
        lambda f: _plugin(f, lambda p: p["rules"][0].update(condition="GpuGone")),
        ("the condition GpuGone, which has no default",),
    ),
    (
        "watch-plugin",
        "health",
        lambda f: _plugin(f, lambda p: p["rules"][0].update(timeout="1m")),
        ("1m, more than its pluginConfig allows",),
    ),
    (
        "taken-out",
        "health",
        lambda f: values(f).pop("daemonsets"),
        ("the operator's daemons do not tolerate dev.provision/unhealthy",),
    ),
    (
        "taken-out",
        "health",
        lambda f: get(f, "PodTemplate")["template"]["spec"]["tolerations"].pop(),
        ("PodTemplate provision-health/provision-prove does not tolerate",),
    ),
    (
        "taken-out",
        "health of nodes",
        lambda f: get(f, "DaemonSet", "device-plugin.yaml")["spec"]["template"]["spec"]["tolerations"].pop(),
        ("DaemonSet kube-system/provision-device-plugin does not tolerate",),
    ),
    ("reference", "claimed", lambda f: f["claims.yaml"].clear(), ("ResourceClaimTemplate claim-gpus-4",)),
    (
        "reference",
        "trainer",
        lambda f: get(f, "TrainJob")["spec"]["runtimeRef"].update(name="torch-distributed"),
        ("TrainingRuntime torch-distributed",),
    ),
    (
        "runtime-class",
        "train",
        lambda f: pod(f, "JobSet").update(runtimeClassName="kata"),
        ("RuntimeClass kata", "--existing RuntimeClass/kata"),
    ),
    (
        "priority-class",
        "train",
        lambda f: pod(f, "JobSet").update(priorityClassName="urgent"),
        ("PriorityClass urgent", "--existing PriorityClass/urgent"),
    ),
    (
        "quota",
        "train",
        lambda f: get(f, "ResourceQuota")["spec"]["hard"].update({"requests.nvidia.com/gpu": "8"}),
        ("JobSet vision/train asks for 16", "ResourceQuota vision/gpus allows 8"),
    ),
    (
        "quota",
        "claimed",
        lambda f: get(f, "ResourceClaimTemplate")["spec"]["spec"]["devices"]["requests"][0]["exactly"].update(count=5),
        ("asks for 5 of gpu.nvidia.com.deviceclass", "allows 4"),
    ),
    (
        "quota",
        "serve",
        lambda f: get(f, "ScaledObject")["spec"].update(maxReplicaCount=9),
        ("Deployment web/chat asks for 10", "allows 9"),
    ),
    (
        "quota",
        "ray",
        lambda f: get(f, "RayJob")["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].update(maxReplicas=3),
        ("RayJob lab/ray asks for 12", "allows 9"),
    ),
    (
        "limit-range",
        "train",
        lambda f: get(f, "LimitRange")["spec"]["limits"][0]["default"].update(cpu="1"),
        ("8 GPUs and no limit of processors is held to 1", "LimitRange vision/defaults"),
    ),
    (
        "limit-range",
        "train",
        lambda f: get(f, "LimitRange")["spec"]["limits"][0].update(max={"memory": "64Gi"}),
        ("memory 136Gi", "max is 64Gi"),
    ),
    (
        "limit-range",
        "train",
        lambda f: get(f, "LimitRange")["spec"]["limits"][0].update(min={"memory": "512Gi"}),
        ("memory 136Gi", "min is 512Gi"),
    ),
    ("resource", "train", lambda f: values(f)["devicePlugin"].update(enabled=False), ("turns the device plugin off",)),
    (
        "resource",
        "mig",
        lambda f: resources(f, "Job", **{"nvidia.com__mig-3g.40gb": "1"}),
        ("nvidia.com/mig-3g.40gb", "nodes offer nvidia.com/gpu, nvidia.com/mig-1g.10gb"),
    ),
    (
        "resource",
        "shared",
        lambda f: resources(f, "Job", **{"nvidia.com__gpu": "1"}),
        ("asks for nvidia.com/gpu", "nodes offer nvidia.com/gpu.shared"),
    ),
    ("mig-layout", "mig", lambda f: values(f)["migManager"].update(enabled=False), ("mig.strategy is mixed", "is off")),
    (
        "mig-layout",
        "single",
        lambda f: values(f)["migManager"].pop("config"),
        ("mig.strategy is single", "no layout cuts a GPU"),
    ),
    (
        "product",
        "mig",
        lambda f: terms(f, "Job").update(key="nvidia.com/gpu.product"),
        ("nvidia.com/mig-1g.10gb", "the label of another resource"),
    ),
    (
        "product",
        "single",
        lambda f: terms(f, "Job").update(values=["NVIDIA-H100-80GB-HBM3"]),
        ("nodes cut into 1g.10gb no longer have", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
    ),
    ("product", "train", lambda f: values(f)["gfd"].update(enabled=False), ("nothing labels nodes",)),
    (
        "product",
        "nodes",
        lambda f: pod(f, "DaemonSet")["containers"].pop(),
        ("Job default/slice-verify chooses nodes by nvidia.com/gpu.product, and nothing labels nodes",),
    ),
    (
        "node-pool",
        "train",
        lambda f: terms(f, "JobSet").update(values=["NVIDIA-A100-SXM4-80GB"]),
        ("NVIDIA-A100-SXM4-80GB", "NodePool gpu-h100-sxm5-80gb have NVIDIA-H100-80GB-HBM3"),
    ),
    (
        "node-pool",
        "train",
        lambda f: pod(f, "JobSet").update(tolerations=[]),
        ("taint nvidia.com/gpu", "do not tolerate"),
    ),
    (
        "queue",
        "train",
        lambda f: get(f, "JobSet")["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "other"}),
        ("JobSet vision/train waits in queue other",),
    ),
    ("queue", "train", lambda f: f["queues.yaml"].pop(0), ("ClusterQueue vision has ResourceFlavor gpu",)),
    (
        "queue",
        "train",
        lambda f: get(f, "LocalQueue")["spec"].update(clusterQueue="other"),
        ("LocalQueue vision/vision leads to ClusterQueue other",),
    ),
    (
        "queue",
        "train",
        lambda f: resources(f, "JobSet", rdma__hca="1"),
        ("rdma/hca", "ClusterQueue vision does not cover"),
    ),
    (
        "queue",
        "train",
        lambda f: get(f, "ClusterQueue")["spec"]["resourceGroups"][0]["flavors"][0]["resources"][2].update(
            nominalQuota=8
        ),
        ("asks for 16 of nvidia.com/gpu", "ClusterQueue vision has 8"),
    ),
    (
        "queue",
        "train",
        lambda f: get(f, "ResourceFlavor")["spec"]["nodeLabels"].update({"nvidia.com/gpu.product": "NVIDIA-L4"}),
        ("ResourceFlavor gpu has nodes with NVIDIA-L4",),
    ),
    (
        "monitor",
        "train",
        lambda f: get(f, "ServiceMonitor")["spec"]["selector"]["matchLabels"].update(app="dcgm"),
        ("selects app=dcgm in gpu-operator", "nothing is scraped"),
    ),
    (
        "monitor",
        "train",
        lambda f: get(f, "ServiceMonitor")["spec"]["namespaceSelector"].update(matchNames=["monitoring"]),
        ("in monitoring",),
    ),
    (
        "monitor",
        "train",
        lambda f: get(f, "ServiceMonitor")["spec"]["endpoints"][0].update(port="metrics"),
        ("scrapes the port metrics",),
    ),
    ("monitor", "train", _unlabelled, ("PrometheusRule gpu-operator/provision-gpu is keyed by node",)),
    ("monitor", "train", lambda f: f["monitoring.yaml"].pop(0), ("series that nothing scrapes",)),
    (
        "counter",
        "train",
        lambda f: values(f)["dcgmExporter"].pop("config"),
        ("PrometheusRule gpu-operator/provision-gpu asks for DCGM_EXP_CLOCK_EVENTS_COUNT and",),
    ),
    (
        "counter",
        "serve",
        lambda f: values(f)["dcgmExporter"]["config"].update(data="DCGM_FI_DEV_GPU_TEMP, gauge, x\n"),
        ("ScaledObject web/chat asks for DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
    ),
    (
        "port",
        "serve",
        lambda f: get(f, "Service")["spec"]["ports"][0].update(targetPort=9000),
        ("Service web/chat sends to the port 9000",),
    ),
    (
        "port",
        "serve",
        lambda f: get(f, "Service")["spec"]["selector"].update({"app.kubernetes.io/name": "other"}),
        ("which no Pod of these files has",),
    ),
    (
        "port",
        "serve",
        lambda f: pod(f, "Deployment")["containers"][0]["readinessProbe"]["tcpSocket"].update(port="web"),
        ("readinessProbe asks the port web",),
    ),
    (
        "scaler",
        "serve",
        lambda f: get(f, "ScaledObject")["spec"]["scaleTargetRef"].update(name="other"),
        ("scales Deployment other",),
    ),
    ("scaler", "serve", lambda f: get(f, "Deployment")["spec"].update(replicas=2), ("each apply would undo",)),
    (
        "scaler",
        "serve",
        lambda f: get(f, "ServiceMonitor")["spec"]["endpoints"][0]["relabelings"][0].update(replacement="lab"),
        ("asks for the cluster prod", "series are of lab"),
    ),
    (
        "pod-security",
        "rdma",
        lambda f: get(f, "Namespace")["metadata"]["labels"].update({"pod-security.kubernetes.io/enforce": "baseline"}),
        ("IPC_LOCK", "Namespace vision enforces baseline"),
    ),
    (
        "pod-security",
        "train",
        lambda f: pod(f, "JobSet")["volumes"].append({"name": "h", "hostPath": {"path": "/data"}}),
        ("uses the host's paths",),
    ),
    (
        "two-ways",
        "claimed",
        lambda f: values(f)["devicePlugin"].update(enabled=True),
        ("claims GPUs", "hands out the same ones"),
    ),
    ("two-ways", "nodes", _claiming, ("Job default/slice-verify claims GPUs", "DaemonSet kube-system/")),
    ("two-ways", "train", _plugin_beside, ("DaemonSet kube-system/plugin", "offers as well")),
    ("ray-closed", "ray", _policy, ("RayJob lab/ray is asked by its operator on port 8265", "NetworkPolicy lab/deny")),
    (
        "ray-autoscaler",
        "scaled ray",
        lambda f: workers(f).update(replicas=3),
        ("RayCluster lab/scaled begins with 3 workers", "bounds are 0 and 2"),
    ),
    (
        "ray-autoscaler",
        "scaled ray",
        lambda f: get(f, "RayCluster")["spec"].pop("enableInTreeAutoscaling"),
        ("nothing scales it",),
    ),
    (
        "ray-autoscaler",
        "scaled ray",
        lambda f: get(f, "RayCluster")["spec"]["headGroupSpec"]["template"]["spec"].update(
            automountServiceAccountToken=False
        ),
        ("no account",),
    ),
    (
        "ray-autoscaler",
        "scaled ray",
        lambda f: get(f, "RayCluster")["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "lab"}),
        ("queue of Kueue",),
    ),
    (
        "ray-autoscaler",
        "scaled ray",
        lambda f: without(f, "tenant-lab.yaml", "ray-autoscaler"),
        ("asks the API server", "NetworkPolicy lab/deny"),
    ),
    (
        "store-closed",
        "stored",
        lambda f: without(f, "tenant-lab.yaml", "object-storage"),
        ("copies from object storage", "NetworkPolicy lab/deny"),
    ),
    ("listed", "train", lambda f: f.pop("verify.yaml"), ("lists verify.yaml, which is not there",)),
    (
        "listed",
        "train",
        lambda f: get(f, "Kustomization")["resources"].remove("queues.yaml"),
        ("does not list queues.yaml",),
    ),
]


@pytest.mark.parametrize("name", BUNDLES)
def test_what_is_written_agrees_with_itself(name: str, image_lock: Subject, matrix: Matrix) -> None:
    options = BUNDLES[name]
    assert judged(load(image_lock, options, matrix), matrix, options.existing) == ()


@pytest.mark.parametrize(
    ("rule", "name", "change", "words"), TABLE, ids=[f"{row[0]} {number}" for number, row in enumerate(TABLE)]
)
def test_a_contradiction_is_found_and_both_sides_are_named(
    rule: str, name: str, change: Change, words: tuple[str, ...], image_lock: Subject, matrix: Matrix
) -> None:
    options = BUNDLES[name]
    files = load(image_lock, options, matrix)
    change(files)
    found = [item for item in judged(files, matrix, options.existing) if item.rule == rule]
    assert found, "nothing was found"
    said = " ".join(f"{item.because} {item.way_out}" for item in found)
    assert [word for word in words if word not in said] == []
    assert all(item.way_out and item.path for item in found)


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        *((name, True) for name in ("view", "edit", "admin", "cluster-admin", "system:node")),
        *((name, False) for name in ("viewer-gpu", "editor", "admin-team", "cluster-admins")),
    ],
)
def test_a_role_that_begins_as_a_default_one_does_is_not_one(name: str, is_known: bool, matrix: Matrix) -> None:
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    told = [row.because for row in judge([("b.yaml", body)], matrix=matrix)]
    assert told == ([] if is_known else [f"ClusterRoleBinding b is about ClusterRole {name}, which nothing makes"])


def test_every_rule_has_a_red_case() -> None:
    assert {row[0] for row in TABLE} == set(RULES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tenants": (Tenant(name="vision", gpus=8),)}, "asks for 16 of requests.nvidia.com/gpu"),
        ({"namespace": "speech"}, "--existing Namespace/speech"),
        ({"existing": ("PersistentVolumeClaim/datasets", "PriorityClass/batch")}, "--existing Secret/hub"),
        ({"existing": ("PersistentVolumeClaim/datasets", "Secret/hub")}, "--existing PriorityClass/batch"),
        ({"existing": ("PriorityClass/batch", "Secret/hub")}, "--existing PersistentVolumeClaim/datasets"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused_with_a_way_out(
    change: dict[str, Any], said: str, image_lock: Subject, matrix: Matrix
) -> None:
    with pytest.raises(IncompatibleError) as caught:
        load(image_lock, replace(TRAIN, **change), matrix)
    assert said in " ".join((*caught.value.because, *map(str, caught.value.hints)))


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Deployment", "spec": []},
        {"kind": "JobSet", "spec": {"replicatedJobs": [1, {"template": "x"}]}},
        {"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "many"}}}]}},
        {"kind": "ResourceQuota", "metadata": 3, "spec": {"hard": ["x"]}},
        {"kind": "ScaledObject", "spec": {"scaleTargetRef": None}},
        {"kind": "Kustomization", "resources": None},
        {"kind": "Service", "metadata": {"name": None}, "spec": {"selector": {"a": 1}, "ports": [None]}},
        {"migManager": "x", "dcgmExporter": [], "mig": {"strategy": 1}},
    ],
)
def test_a_document_of_any_form_is_no_crash(document: dict[str, Any], matrix: Matrix) -> None:
    judge([("x.yaml", document)], matrix=matrix)


_RUBBISH: tuple[Any, ...] = (None, 1, True, "x", [], {}, [1], [None], {"x": 1}, [{"x": 1}], -1, "1Gi", [["a"]])


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a document: what holds it, and at which key."""
    for key, item in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield node, key
        yield from _places(item)


@pytest.mark.parametrize("name", BUNDLES)
def test_rubbish_anywhere_is_no_crash(name: str, image_lock: Subject, matrix: Matrix) -> None:
    chance = random.Random(name)  # noqa: S311
    sound = load(image_lock, BUNDLES[name], matrix)
    for _ in range(60):
        files = copy.deepcopy(sound)
        for _ in range(2):
            holder, key = chance.choice([place for rows in files.values() for row in rows for place in _places(row)])
            holder[key] = copy.deepcopy(chance.choice(_RUBBISH))
        pairs = [(path, row) for path, rows in files.items() for row in rows if isinstance(row, dict)]
        judge(pairs, matrix=matrix)
