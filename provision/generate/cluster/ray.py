"""Ray: a cluster that stands, one for a job, or one that serves, on Kubernetes; and one that `ray up` starts."""

from __future__ import annotations

import shlex
from typing import Any

from provision.errors import IncompatibleError, UnknownError, UsageError
from provision.generate.cluster.manifest import to_yaml
from provision.generate.cluster.options import ClusterOptions
from provision.generate.cluster.plan import Plan, work_variables
from provision.generate.cluster.pod import gpu_pod
from provision.generate.cluster.shapes import check_shape

_KINDS = {"raycluster": "RayCluster", "rayjob": "RayJob", "rayservice": "RayService"}
_KEPT_SECONDS = 86400
_HEAD_CPUS, _HEAD_GIB = "2", "8Gi"


def ray_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return the RayCluster, RayJob or RayService that was asked for."""
    kind = _KINDS[plan.options.runner]
    spec = _cluster(plan)
    if kind == "RayJob":
        spec = {
            "entrypoint": shlex.join(("python", *plan.options.script)),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "rayClusterSpec": spec,
        }
    elif kind == "RayService":
        application = {"name": plan.name, "import_path": plan.options.script[0], "route_prefix": "/"}
        served = to_yaml((), ({"applications": [application]},)).removeprefix("---\n")
        spec = {"serveConfigV2": served, "rayClusterConfig": spec}
    document = {
        "apiVersion": plan.matrix.shapes[kind].api,
        "kind": kind,
        "metadata": plan.metadata(plan.name, is_queued=True),
        "spec": spec,
    }
    check_shape(kind, document, plan.matrix)
    return [document]


def _cluster(plan: Plan) -> dict[str, Any]:
    """Return a head without a GPU and workers with them; KubeRay starts Ray in both."""
    options = plan.options
    variables = work_variables(plan)
    worker = gpu_pod(plan, (), variables, container="ray-worker")
    # Ray starts a worker anew by itself.
    del worker["restartPolicy"]
    limits = {"cpu": _HEAD_CPUS, "memory": _HEAD_GIB}
    main = worker["containers"][0]
    head: dict[str, Any] = {
        "name": "ray-head",
        "image": options.image,
        "ports": [{"name": name, "containerPort": int(port)} for name, port in plan.entries("ray_ports").items()],
        **{key: main[key] for key in ("env", "envFrom") if key in main},
        "resources": {"limits": limits, "requests": dict(limits)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    mounts = [mount for mount in main["volumeMounts"] if mount["name"] != "shm"]
    volumes = [volume for volume in worker["volumes"] if volume["name"] != "shm"]
    if mounts:
        head["volumeMounts"] = mounts
    # The autoscaler runs beside the head, and asks for workers with the account that KubeRay makes for it.
    pod: dict[str, Any] = {"automountServiceAccountToken": options.scale is not None, "containers": [head]}
    if volumes:
        pod["volumes"] = volumes
    if options.priority is not None:
        pod["priorityClassName"] = options.priority
    least, most = options.scale or (options.nodes, options.nodes)
    scaling: dict[str, Any] = {}
    if options.scale is not None:
        scaling = {"enableInTreeAutoscaling": True, "autoscalerOptions": _scaler(options)}
    return {
        **({} if plan.subject.ray is None else {"rayVersion": plan.subject.ray}),
        **scaling,
        "headGroupSpec": {
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-gpus": "0"},  # noqa: S104
            "template": {"spec": pod},
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": least,
                "minReplicas": least,
                "maxReplicas": most,
                "rayStartParams": {"num-gpus": str(options.gpus)},
                "template": {"spec": worker},
            }
        ],
    }


def _scaler(options: ClusterOptions) -> dict[str, Any]:
    """Return how Ray's autoscaler behaves: as it does by itself, but for how long a worker may be idle."""
    found: dict[str, Any] = {
        "upscalingMode": "Default",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if options.idle_seconds is not None:
        found["idleTimeoutSeconds"] = options.idle_seconds
    return found


def ray_up(plan: Plan) -> dict[str, Any]:
    """Return what `ray up` starts the same cluster by, on machines of a cloud in place of Pods.

    What only its owner knows stands there as ``REPLACE-…``: which image of a machine has the driver, which type the
    head has, which project it is in. The commands of Ray's own defaults install Ray; here it is in the image already.

    Raises:
        UnknownError: The facts know no such machine.
        UsageError: Ray starts no machines of that provider, or the machine has other GPUs or fewer of them.
    """
    options = plan.options
    provider, kind, region = options.machine or ("", "", "")
    clouds = plan.entries("ray_up_providers")
    if provider not in clouds:
        raise UsageError(
            f"`ray up` starts no machines of {provider} by these files",
            because=(f"they are written for {', '.join(sorted(clouds))}",),
            hints=("name a machine of one of them, as in `--ray-up aws/p5.48xlarge/us-east-1`",),
        )
    gpus = _gpus_of(plan, provider, kind, region)
    least, most = options.scale or (options.nodes, options.nodes)
    variables = [shlex.quote(f"--env={name}={value}") for name, value in sorted(work_variables(plan).items())]
    head, worker = _node_configs(provider, kind)
    document: dict[str, Any] = {
        "cluster_name": plan.name,
        "max_workers": most,
        "provider": _provider(provider, region),
        "auth": {"ssh_user": "ubuntu"},
        "docker": {
            "image": options.image,
            "container_name": "ray",
            "pull_before_run": True,
            "run_options": ["--ulimit=nofile=65536:65536"],
            "head_run_options": variables,
            "worker_run_options": [f"--shm-size={plan.shm_gib}g", "--ulimit=memlock=-1", *variables],
        },
        "head_node_type": "head",
        "available_node_types": {
            "head": {"node_config": head, "resources": {"GPU": 0}, "min_workers": 0, "max_workers": 0},
            "gpu": {
                "node_config": worker,
                "resources": {"GPU": gpus},
                "min_workers": least,
                "max_workers": most,
            },
        },
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
    }
    if options.idle_seconds is not None:
        document["idle_timeout_minutes"] = options.idle_seconds / 60
    return document


def _gpus_of(plan: Plan, provider: str, kind: str, region: str) -> int:
    """Return how many GPUs such a machine has, of those of the lock and as many as the work asks for."""
    rows = [
        row
        for row in plan.matrix.rows("cloud/instances.toml", "instance")
        if (row.provider, row.type) == (provider, kind) and region in ("", row.region)
    ]
    if not rows:
        raise UnknownError(
            f"no {provider} {kind}{f' in {region}' if region else ''} is known",
            because=("cloud/instances.toml has none",),
            hints=("`provision plan` lists machines",),
        )
    machine = rows[0]
    if plan.products.gpus and machine.gpu not in plan.products.gpus:
        raise IncompatibleError(
            f"{kind} has {machine.gpu}, and the lock is for {', '.join(plan.products.gpus)}",
            hints=(f"name another machine, or resolve for it with `--gpu {machine.gpu}`",),
        )
    if machine.gpu_count != plan.options.gpus:
        raise UsageError(
            f"{kind} has {machine.gpu_count} GPUs, and --gpus says {plan.options.gpus}",
            because=("a worker of `ray up` is a machine, and has all of its GPUs",),
            hints=(f"write `--gpus {machine.gpu_count}`",),
        )
    return plan.options.gpus


def _provider(provider: str, region: str) -> dict[str, Any]:
    where = region or "REPLACE-WITH-REGION"
    if provider == "azure":
        return {"type": "azure", "location": where, "resource_group": "REPLACE-WITH-RESOURCE-GROUP"}
    zone = f"{where}-REPLACE-WITH-ZONE" if provider == "gcp" else f"{where}REPLACE-WITH-ZONE"
    more = {"project_id": "REPLACE-WITH-PROJECT"} if provider == "gcp" else {"cache_stopped_nodes": False}
    return {"type": provider, "region": where, "availability_zone": zone, **more}


def _node_configs(provider: str, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the head and a worker are made by; neither driver nor container engine comes from Ray."""
    small, image = "REPLACE-WITH-TYPE-WITHOUT-GPU", "REPLACE-WITH-IMAGE-THAT-HAS-DRIVER-AND-DOCKER"

    def one(machine: str) -> dict[str, Any]:
        if provider == "aws":
            return {"InstanceType": machine, "ImageId": image}
        if provider == "azure":
            return {"azure_arm_parameters": {"vmSize": machine, "imageId": image}}
        disk = {"boot": True, "autoDelete": True, "type": "PERSISTENT", "initializeParams": {"sourceImage": image}}
        return {"machineType": machine, "disks": [disk]}

    return one(small), one(kind)
