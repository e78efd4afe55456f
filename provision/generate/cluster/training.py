"""Jobs that prove the nodes and that train: plain Jobs, JobSets and TrainJobs from one Pod."""

from __future__ import annotations

from typing import Any

from provision.errors import UsageError
from provision.generate.cluster.options import SERVING
from provision.generate.cluster.plan import FILE, Plan, work_variables
from provision.generate.cluster.pod import gpu_pod
from provision.generate.cluster.serving import GRACE_SECONDS, first_request
from provision.generate.cluster.shapes import check_shape
from provision.generate.cluster.store import store_mounts, store_services

_VERIFY = ("python", "/opt/provision/verify.py", "--gpu")
_PORT = 29500
_WORKER = "worker"
_KEPT_SECONDS = 86400
_RESTARTS = 3


def verify_job(plan: Plan) -> dict[str, Any]:
    """Return a Job that runs the image's own verification on a GPU."""
    return _job(plan, f"{plan.name}-verify", gpu_pod(plan, _VERIFY, {}, gpus=1))


def nccl_tests_job(plan: Plan) -> dict[str, Any]:
    """Return a Job that measures all-reduce over the GPUs of one node."""
    words = (*plan.matrix.setting(FILE, "nccl_tests_command").values, str(plan.options.gpus))
    pod = gpu_pod(plan, words, work_variables(plan), image=plan.options.nccl_tests_image)
    return _job(plan, f"{plan.name}-nccl", pod)


def training(plan: Plan) -> list[dict[str, Any]]:
    """Return what trains with torchrun on as many Pods as were asked for.

    A Job has no names for its Pods, so it trains on one alone; a JobSet gives each a name, and Kubeflow Trainer sets
    the variables that torchrun reads.

    Raises:
        UsageError: A plain Job on more than one Pod.
    """
    options = plan.options
    if options.runner == "job":
        if options.nodes > 1:
            raise UsageError(
                f"--runner job trains on one Pod, not on {options.nodes}",
                because=("the Pods of a Job have no names to find each other by",),
                hints=("use `--runner jobset` or `--runner trainjob`",),
            )
        words = ("torchrun", "--standalone", f"--nproc-per-node={options.gpus}", *options.script)
        return [_job(plan, plan.name, gpu_pod(plan, words, work_variables(plan), is_fed=True))]
    return [_jobset(plan)] if options.runner == "jobset" else _trainjob(plan)


def compose_file(plan: Plan) -> dict[str, Any]:
    """Return a Compose file with the same limits, of a training or a service, for one machine without Kubernetes."""
    options = plan.options
    is_service = options.runner in SERVING
    limits: dict[str, Any] = {"memory": f"{plan.memory_for(options.gpus)}G"}
    if options.cpus is not None:
        limits["cpus"] = str(options.cpus)
    starter = () if is_service else ("torchrun", "--standalone", f"--nproc-per-node={options.gpus}")
    devices = {"driver": "nvidia", "count": options.gpus, "capabilities": ["gpu"]}
    service: dict[str, Any] = {
        "image": options.image,
        "labels": {"dev.provision.lock": plan.subject.digest},
        "shm_size": f"{plan.shm_gib}gb",
        "ulimits": {"memlock": -1},
        "deploy": {"resources": {"limits": limits, "reservations": {"devices": [devices]}}},
        "command": _escaped((*starter, *options.script)),
    }
    if is_service and options.warm_up is not None:
        words, seconds, times = first_request(options.warm_up, options.port)
        # Healthy is what has answered; while it starts, no answer counts as a failure.
        service |= {
            "ports": [f"127.0.0.1:{options.port}:{options.port}"],
            "healthcheck": {
                "test": ["CMD", *_escaped(words)],
                "interval": "10s",
                "timeout": f"{seconds}s",
                "start_period": f"{10 * times}s",
            },
            "stop_grace_period": f"{GRACE_SECONDS}s",
        }
    variables = work_variables(plan)
    if variables:
        service["environment"] = {name: value.replace("$", "$$") for name, value in sorted(variables.items())}
    name = "serve" if is_service else "train"
    services, waits, volumes = store_services(plan)
    if not services:
        return {"services": {name: service}}
    service["depends_on"] = waits
    service["volumes"] = [
        f"{mount['name']}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"
        for mount in store_mounts(options)
    ]
    return {"services": {**services, name: service}, "volumes": volumes}


def _escaped(words: tuple[str, ...]) -> list[str]:
    """Return words as Compose takes them: it replaces $NAME, and two dollars are one."""
    return [word.replace("$", "$$") for word in words]


def _jobset(plan: Plan) -> dict[str, Any]:
    options = plan.options
    # The first Pod of the first Job of a replicated job has this name in the JobSet's subdomain.
    leader = f"{plan.name}-{_WORKER}-0-0.{plan.name}"
    words = (
        "torchrun",
        f"--nnodes={options.nodes}",
        f"--nproc-per-node={options.gpus}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={leader}:{_PORT}",
        f"--rdzv-id={plan.name}",
        *options.script,
    )
    spec = {
        "parallelism": options.nodes,
        "completions": options.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": gpu_pod(plan, words, work_variables(plan), is_fed=True)},
    }
    document = {
        "apiVersion": plan.matrix.shapes["JobSet"].api,
        "kind": "JobSet",
        "metadata": plan.metadata(plan.name, is_queued=True),
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": plan.name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": _RESTARTS},
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "replicatedJobs": [{"name": _WORKER, "replicas": 1, "template": {"spec": spec}}],
        },
    }
    check_shape("JobSet", document, plan.matrix)
    return document


def _trainjob(plan: Plan) -> list[dict[str, Any]]:
    """Return a runtime of its own and the TrainJob that runs it: one that all share would not have this Pod."""
    options = plan.options
    node = plan.fact("trainer_container")
    # The trainer sets PET_NNODES, PET_NPROC_PER_NODE and the address of the first Pod, which torchrun reads.
    pod = gpu_pod(plan, ("torchrun", *options.script), work_variables(plan), container=node, is_fed=True)
    job = {"metadata": {"labels": plan.entries("trainer_step")}, "spec": {"template": {"spec": pod}}}
    runtime = {
        "apiVersion": plan.matrix.shapes["TrainingRuntime"].api,
        "kind": "TrainingRuntime",
        "metadata": plan.metadata(plan.name),
        "spec": {
            "mlPolicy": {"numNodes": options.nodes, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": node, "template": job}]}},
        },
    }
    trainjob = {
        "apiVersion": plan.matrix.shapes["TrainJob"].api,
        "kind": "TrainJob",
        "metadata": plan.metadata(plan.name, is_queued=True),
        "spec": {
            "runtimeRef": {
                "apiGroup": str(plan.matrix.shapes["TrainingRuntime"].api).partition("/")[0],
                "kind": "TrainingRuntime",
                "name": plan.name,
            },
            "trainer": {"numNodes": options.nodes, "numProcPerNode": options.gpus},
        },
    }
    check_shape("TrainingRuntime", runtime, plan.matrix)
    check_shape("TrainJob", trainjob, plan.matrix)
    return [runtime, trainjob]


def _job(plan: Plan, name: str, pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": plan.metadata(name, is_queued=True),
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": _KEPT_SECONDS, "template": {"spec": pod}},
    }
