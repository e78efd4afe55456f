"""The Pod that every piece of work has in common, whatever starts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.generate.cluster.plan import Plan
from provision.generate.cluster.plugin import node_selector
from provision.generate.cluster.store import GRACE_SECONDS, store_mounts, store_steps, store_volumes

_CLAIM = "gpus"


def gpu_pod(
    plan: Plan,
    words: tuple[str, ...],
    variables: Mapping[str, str],
    *,
    gpus: int | None = None,
    image: str | None = None,
    container: str = "main",
    is_fed: bool = False,
) -> dict[str, Any]:
    """Return a Pod with GPUs that runs once.

    Args:
        plan: What was decided.
        words: Its command; empty for that of the image.
        variables: Of its container.
        gpus: How many; those of the work unless given.
        image: That of the work unless given.
        container: Name of its container.
        is_fed: Whether data and checkpoints are copied for it.
    """
    options = plan.options
    count = options.gpus if gpus is None else gpus
    body: dict[str, Any] = {"name": container, "image": image or options.image}
    if words:
        body["command"] = list(words)
    if variables:
        body["env"] = [{"name": name, "value": value} for name, value in sorted(variables.items())]
    if options.secrets:
        body["envFrom"] = [{"secretRef": {"name": secret}} for secret in options.secrets]
    body["resources"] = _resources(plan, count)
    body["securityContext"] = _security(plan)
    body["volumeMounts"] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        *({"name": f"data-{place}", "mountPath": path} for place, (_, path) in enumerate(options.volumes)),
        *(store_mounts(options) if is_fed else ()),
    ]
    pod: dict[str, Any] = {"restartPolicy": "Never", "automountServiceAccountToken": False}
    if options.priority is not None:
        pod["priorityClassName"] = options.priority
    if plan.owned.owner == "node":
        pod["runtimeClassName"] = plan.fact("runtime_class")
        pod["nodeSelector"] = node_selector(plan.matrix)
    if plan.products.values:
        pod["affinity"] = _affinity(plan)
    pod["tolerations"] = tolerations(plan)
    if options.is_claimed:
        pod["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": _template_name(plan, count)}]
    steps = store_steps(plan) if is_fed else []
    if steps:
        pod["initContainers"] = steps
    if is_fed and options.checkpoints is not None:
        pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    pod["containers"] = [body]
    pod["volumes"] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{plan.shm_for(count)}Gi"}},
        *(
            {"name": f"data-{place}", "persistentVolumeClaim": {"claimName": claim}}
            for place, (claim, _) in enumerate(options.volumes)
        ),
        *(store_volumes(options) if is_fed else ()),
    ]
    return pod


def tolerations(plan: Plan) -> list[dict[str, str]]:
    """Return what lets a Pod onto nodes that are kept for GPUs."""
    return [{"key": plan.fact("resource"), "operator": "Exists", "effect": "NoSchedule"}]


def claim_template(plan: Plan, gpus: int) -> dict[str, Any]:
    """Return the template by which each Pod gets a claim of so many GPUs."""
    request = {"deviceClassName": plan.fact("device_class"), "allocationMode": "ExactCount", "count": gpus}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": plan.metadata(_template_name(plan, gpus)),
        "spec": {"spec": {"devices": {"requests": [{"name": _CLAIM, "exactly": request}]}}},
    }


def _template_name(plan: Plan, gpus: int) -> str:
    return f"{plan.name}-gpus-{gpus}"


def _resources(plan: Plan, gpus: int) -> dict[str, Any]:
    """Return limits, and requests equal to them: such a Pod is the last to be evicted."""
    options = plan.options
    limits: dict[str, str] = {} if options.is_claimed else {plan.resource: str(gpus)}
    limits["memory"] = f"{plan.memory_for(gpus)}Gi"
    if options.cpus is not None:
        limits["cpu"] = str(options.cpus)
    if options.rdma is not None:
        limits[options.rdma[0]] = str(options.rdma[1])
    resources: dict[str, Any] = {"limits": limits, "requests": dict(limits)}
    if options.is_claimed:
        resources["claims"] = [{"name": _CLAIM}]
    return resources


def _security(plan: Plan) -> dict[str, Any]:
    capabilities: dict[str, list[str]] = {"drop": ["ALL"]}
    if plan.options.rdma is not None:
        # Memory that a network device reads and writes is locked in place.
        capabilities["add"] = [plan.fact("rdma_capability")]
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def _affinity(plan: Plan) -> dict[str, Any]:
    expression = {"key": plan.products.key, "operator": "In", "values": list(plan.products.values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
