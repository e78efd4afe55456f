"""Ray on Kubernetes: a cluster that stands, one for a job, or one that serves."""

from __future__ import annotations

import shlex
from typing import Any

from provision.generate.cluster.manifest import to_yaml
from provision.generate.cluster.plan import Plan, work_variables
from provision.generate.cluster.pod import gpu_pod
from provision.generate.cluster.shapes import check_shape

__all__ = ["ray_objects"]

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
    pod: dict[str, Any] = {"automountServiceAccountToken": False, "containers": [head]}
    if volumes:
        pod["volumes"] = volumes
    if options.priority is not None:
        pod["priorityClassName"] = options.priority
    return {
        "headGroupSpec": {
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-gpus": "0"},  # noqa: S104
            "template": {"spec": pod},
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": options.nodes,
                "minReplicas": options.nodes,
                "maxReplicas": options.nodes,
                "rayStartParams": {"num-gpus": str(options.gpus)},
                "template": {"spec": worker},
            }
        ],
    }
