"""Jobs that prove the nodes and that train: plain Jobs, JobSets and PyTorchJobs from one Pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.errors import UsageError
from provision.generate.cluster.fields import check_fields
from provision.generate.cluster.options import ClusterOptions, Subject
from provision.generate.cluster.plugin import node_selector
from provision.generate.tuning import Situation, container_variables
from provision.matrix.load import Matrix

__all__ = ["compose_file", "job_variables", "nccl_tests_job", "shm_gib", "training_job", "verify_job"]

_FILE = "cluster.toml"
_VERIFY = ("python", "/opt/provision/verify.py", "--gpu")
_PORT = 29500
_TRAIN, _CHECK, _NCCL = "train", "provision-verify", "nccl-tests"
_WORKER = "worker"
_KEPT_SECONDS = 86400
_MEMORY_GIB_PER_GPU = 16
_DIGEST_SHOWN = 12


def verify_job(subject: Subject, options: ClusterOptions, owner: str, resource: str, matrix: Matrix) -> dict[str, Any]:
    """Return a Job that runs the image's own verification on a GPU."""
    pod = _pod(_VERIFY, options, owner, resource, 1, {}, matrix)
    return _job(_CHECK, pod, subject, options)


def nccl_tests_job(
    subject: Subject, options: ClusterOptions, owner: str, resource: str, matrix: Matrix
) -> dict[str, Any]:
    """Return a Job that measures all-reduce over the GPUs of one node."""
    words = (*matrix.setting(_FILE, "nccl_tests_command").values, str(options.gpus))
    pod = _pod(words, options, owner, resource, options.gpus, job_variables(subject, options, matrix), matrix)
    pod["containers"][0]["image"] = options.nccl_tests_image
    return _job(_NCCL, pod, subject, options)


def training_job(
    subject: Subject, options: ClusterOptions, owner: str, resource: str, matrix: Matrix
) -> list[dict[str, Any]]:
    """Return what trains with torchrun on ``options.nodes`` Pods.

    A Job has no names for its Pods, so it trains on one alone; a JobSet gives each a name, and PyTorchJob sets the
    variables that torchrun reads.

    Raises:
        UsageError: A plain Job on more than one Pod.
    """
    variables = job_variables(subject, options, matrix)
    if options.runner == "job":
        if options.nodes > 1:
            raise UsageError(
                f"--runner job trains on one Pod, not on {options.nodes}",
                because=("the Pods of a Job have no names to find each other by",),
                hints=("use `--runner jobset` or `--runner pytorchjob`",),
            )
        words = ("torchrun", "--standalone", f"--nproc-per-node={options.gpus}", *options.script)
        return [_job(_TRAIN, _pod(words, options, owner, resource, options.gpus, variables, matrix), subject, options)]
    if options.runner == "jobset":
        return [_jobset(subject, options, owner, resource, variables, matrix)]
    return [_pytorchjob(subject, options, owner, resource, variables, matrix)]


def compose_file(
    subject: Subject, options: ClusterOptions, variables: Mapping[str, str], matrix: Matrix
) -> dict[str, Any]:
    """Return a Compose file with the same limits, for one machine without Kubernetes."""
    gpus = options.gpus
    shm = shm_gib(options, gpus, matrix)
    limits: dict[str, Any] = {"memory": f"{_memory_gib(options, gpus, shm)}G"}
    if options.cpus is not None:
        limits["cpus"] = str(options.cpus)
    service: dict[str, Any] = {
        "image": options.image,
        "labels": {"dev.provision.lock": subject.digest},
        "shm_size": f"{shm}gb",
        "ulimits": {"memlock": -1},
        "deploy": {
            "resources": {
                "limits": limits,
                "reservations": {"devices": [{"driver": "nvidia", "count": gpus, "capabilities": ["gpu"]}]},
            }
        },
    }
    if options.script:
        # Compose replaces $NAME; two dollars are one.
        words = ("torchrun", "--standalone", f"--nproc-per-node={gpus}", *options.script)
        service["command"] = [word.replace("$", "$$") for word in words]
    if variables:
        service["environment"] = {name: value.replace("$", "$$") for name, value in sorted(variables.items())}
    return {"services": {_TRAIN: service}}


def shm_gib(options: ClusterOptions, gpus: int, matrix: Matrix) -> int:
    """Return the size of /dev/shm in GiB: what was asked, or what NCCL's guide gives a process, for each GPU."""
    if options.shm_gib is not None:
        return options.shm_gib
    return gpus * int(str(matrix.setting(_FILE, "shm_gib").value))


def job_variables(subject: Subject, options: ClusterOptions, matrix: Matrix) -> dict[str, str]:
    """Return the variables of a training: the safe ones of the facts, then what was asked."""
    situation = Situation(
        libraries=dict(subject.libraries),
        facts=frozenset({"container"} | ({"multi-node"} if options.nodes > 1 else set()))
        | (frozenset({"shared-gpu"}) if options.sharing != "none" else frozenset()),
    )
    return {**container_variables(situation, matrix), **options.variables}


def _jobset(
    subject: Subject,
    options: ClusterOptions,
    owner: str,
    resource: str,
    variables: Mapping[str, str],
    matrix: Matrix,
) -> dict[str, Any]:
    # The first Pod of the first Job of a replicated job has this name in the JobSet's subdomain.
    leader = f"{_TRAIN}-{_WORKER}-0-0.{_TRAIN}"
    words = (
        "torchrun",
        f"--nnodes={options.nodes}",
        f"--nproc-per-node={options.gpus}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={leader}:{_PORT}",
        f"--rdzv-id={_TRAIN}",
        *options.script,
    )
    pod = _pod(words, options, owner, resource, options.gpus, variables, matrix)
    spec = {
        "parallelism": options.nodes,
        "completions": options.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    document = {
        "apiVersion": matrix.cluster_components["jobset"].api,
        "kind": "JobSet",
        "metadata": _metadata(_TRAIN, subject, options),
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": _TRAIN, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 3},
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "replicatedJobs": [{"name": _WORKER, "replicas": 1, "template": {"spec": spec}}],
        },
    }
    check_fields("jobset", document, matrix)
    return document


def _pytorchjob(
    subject: Subject,
    options: ClusterOptions,
    owner: str,
    resource: str,
    variables: Mapping[str, str],
    matrix: Matrix,
) -> dict[str, Any]:
    def replica(count: int) -> dict[str, Any]:
        # The operator sets PET_NNODES, PET_NODE_RANK and the address of the master, which torchrun reads.
        pod = _pod(("torchrun", *options.script), options, owner, resource, options.gpus, variables, matrix)
        pod["containers"][0]["name"] = "pytorch"
        del pod["restartPolicy"]
        return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}

    replicas = {"Master": replica(1)}
    if options.nodes > 1:
        replicas["Worker"] = replica(options.nodes - 1)
    document = {
        "apiVersion": matrix.cluster_components["pytorchjob"].api,
        "kind": "PyTorchJob",
        "metadata": _metadata(_TRAIN, subject, options),
        "spec": {
            "nprocPerNode": str(options.gpus),
            "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 3, "ttlSecondsAfterFinished": _KEPT_SECONDS},
            "pytorchReplicaSpecs": replicas,
        },
    }
    check_fields("pytorchjob", document, matrix)
    return document


def _job(name: str, pod: dict[str, Any], subject: Subject, options: ClusterOptions) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, subject, options),
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": _KEPT_SECONDS, "template": {"spec": pod}},
    }


def _metadata(name: str, subject: Subject, options: ClusterOptions) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": options.namespace,
        "labels": {
            "app.kubernetes.io/managed-by": "provision",
            # A label takes 63 characters and no colon; the annotation has the whole digest.
            "dev.provision/lock": subject.digest.removeprefix("sha256:")[:_DIGEST_SHOWN],
        },
        "annotations": {"dev.provision/lock": subject.digest},
    }


def _pod(
    words: tuple[str, ...],
    options: ClusterOptions,
    owner: str,
    resource: str,
    gpus: int,
    variables: Mapping[str, str],
    matrix: Matrix,
) -> dict[str, Any]:
    shm = shm_gib(options, gpus, matrix)
    # Requests equal to limits put the Pod into the guaranteed class: it is the last to be evicted.
    resources: dict[str, Any] = {resource: str(gpus), "memory": f"{_memory_gib(options, gpus, shm)}Gi"}
    if options.cpus is not None:
        resources["cpu"] = str(options.cpus)
    container: dict[str, Any] = {
        "name": "main",
        "image": options.image,
        "command": list(words),
        "resources": {"limits": resources, "requests": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    if variables:
        container["env"] = [{"name": name, "value": value} for name, value in sorted(variables.items())]
    pod: dict[str, Any] = {"restartPolicy": "Never", "automountServiceAccountToken": False}
    if owner == "node":
        pod["runtimeClassName"] = str(matrix.setting(_FILE, "runtime_class").value)
        pod["nodeSelector"] = node_selector(matrix)
    pod["tolerations"] = [
        {"key": str(matrix.setting(_FILE, "resource").value), "operator": "Exists", "effect": "NoSchedule"}
    ]
    pod["containers"] = [container]
    pod["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm}Gi"}}]
    return pod


def _memory_gib(options: ClusterOptions, gpus: int, shm: int) -> int:
    """Return the limit of memory; /dev/shm counts into it, so it is added where nothing was asked."""
    return options.memory_gib if options.memory_gib is not None else gpus * _MEMORY_GIB_PER_GPU + shm
