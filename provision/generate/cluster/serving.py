"""A service of several Pods: ready after its first answer, drained before it ends, and as many as its load asks for."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.options import WarmUp
from provision.generate.cluster.plan import Plan, work_variables
from provision.generate.cluster.pod import gpu_pod
from provision.generate.cluster.shapes import check_shape

_PORT_NAME = "http"
_DRAIN_SECONDS = 20
GRACE_SECONDS = 140
"""How long a service may go on with what it was asked before it was told to end."""

_PROBE_SECONDS = 60
# Twenty minutes: weights of hundreds of gigabytes are read in that time.
_PROBES = 120
# Any answer but one of an error will do; urlopen raises for the rest.
_ASK = (
    "import sys, urllib.request as u; "
    "u.urlopen(u.Request(sys.argv[1], data=sys.argv[2].encode() or None, "
    "headers={'Content-Type': 'application/json'}), timeout=50).read()"
)


def service_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return Deployment, Service and PodDisruptionBudget, and the ScaledObject where it grows and shrinks."""
    objects = [_deployment(plan), _service(plan), _budget(plan)]
    return [*objects, _scaled_object(plan)] if plan.options.scale is not None else objects


def _deployment(plan: Plan) -> dict[str, Any]:
    options = plan.options
    mine = {"app.kubernetes.io/name": plan.name}
    pod = gpu_pod(plan, options.script, work_variables(plan), is_fed=True)
    del pod["restartPolicy"]
    container = pod["containers"][0]
    container["ports"] = [{"name": _PORT_NAME, "containerPort": options.port}]
    if options.warm_up is not None:
        container["startupProbe"] = _startup(options.warm_up, options.port)
    container["readinessProbe"] = {"tcpSocket": {"port": _PORT_NAME}, "periodSeconds": 5}
    # Endpoints forget a Pod that ends only after a while; until then it goes on answering.
    container["lifecycle"] = {"preStop": {"sleep": {"seconds": _DRAIN_SECONDS}}}
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    pod["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": mine},
        }
    ]
    spec: dict[str, Any] = {
        "selector": {"matchLabels": mine},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(plan)},
        "template": {"metadata": {"labels": {**mine, **plan.labels()}}, "spec": pod},
    }
    if options.scale is None:
        # Where KEDA sets it, a number here would set it back with every apply.
        spec = {"replicas": options.nodes, **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": plan.metadata(plan.name, is_queued=True),
        "spec": spec,
    }


def _rolling(plan: Plan) -> dict[str, int]:
    """Return how Pods are replaced: one more first where the share has room for it, else one less."""
    has_room = plan.tenant is None or plan.tenant.gpus >= plan.options.gpus * (plan.options.pods + 1)
    return {"maxSurge": 1, "maxUnavailable": 0} if has_room else {"maxSurge": 0, "maxUnavailable": 1}


def _startup(warm_up: WarmUp, port: int) -> dict[str, Any]:
    words, seconds, times = first_request(warm_up, port)
    return {
        "exec": {"command": list(words)},
        "periodSeconds": 10,
        "timeoutSeconds": seconds,
        "failureThreshold": times,
    }


def first_request(warm_up: WarmUp, port: int) -> tuple[tuple[str, ...], int, int]:
    """Return the command that asks a service for the first time, its limit in seconds, and how often it may fail."""
    address = f"http://127.0.0.1:{port}{warm_up.path}"
    return ("python3", "-c", _ASK, address, warm_up.body), _PROBE_SECONDS, _PROBES


def _service(plan: Plan) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": plan.metadata(plan.name),
        "spec": {
            "selector": {"app.kubernetes.io/name": plan.name},
            "ports": [{"name": _PORT_NAME, "port": 80, "targetPort": _PORT_NAME}],
        },
    }


def _budget(plan: Plan) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": plan.metadata(plan.name),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": plan.name}}},
    }


def _scaled_object(plan: Plan) -> dict[str, Any]:
    options = plan.options
    least, most = options.scale or (1, 1)
    limits = {row.id: row.value for row in plan.matrix.rows("scaling.toml", "limit")}
    pods = f'cluster="{options.cluster}",namespace="{options.place}",pod=~"{plan.name}-.+"'
    document = {
        "apiVersion": plan.matrix.shapes["ScaledObject"].api,
        "kind": "ScaledObject",
        "metadata": plan.metadata(plan.name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": plan.name},
            "minReplicaCount": least,
            "maxReplicaCount": most,
            "triggers": [
                {
                    "type": "prometheus",
                    # The mean over the Pods is a value of all of them, not one to be divided among them.
                    "metricType": "Value",
                    "metadata": {
                        "serverAddress": str(options.prometheus),
                        "query": f"100 * avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{pods}}})",
                        "threshold": f"{limits['policy.target.utilisation']:.15g}",
                    },
                }
            ],
        },
    }
    check_shape("ScaledObject", document, plan.matrix)
    return document
