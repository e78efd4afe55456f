"""Shares of tenants as queues of Kueue: work waits for its turn instead of failing at a quota."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.plan import Plan
from provision.generate.cluster.shapes import check_shape

_CPUS_PER_GPU = 32


def queue_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return a ResourceFlavor, and for each tenant a ClusterQueue and the LocalQueue that leads to it.

    Every resource that Pods ask for must be covered, or Kueue admits none of them. Processors and memory are given by
    GPU, as the work asks for them.
    """
    flavor = _flavor(plan)
    objects = [flavor]
    for tenant in plan.options.tenants:
        resources = [
            {"name": name, "nominalQuota": quota}
            for name, quota in sorted(_quota(plan, max(tenant.gpus, 1), tenant.gpus).items())
        ]
        group = {
            "coveredResources": [row["name"] for row in resources],
            "flavors": [{"name": flavor["metadata"]["name"], "resources": resources}],
        }
        objects.append(
            {
                "apiVersion": plan.matrix.shapes["ClusterQueue"].api,
                "kind": "ClusterQueue",
                "metadata": {"name": tenant.name, "labels": plan.labels()},
                "spec": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": tenant.name}},
                    "resourceGroups": [group],
                },
            }
        )
        objects.append(
            {
                "apiVersion": plan.matrix.shapes["LocalQueue"].api,
                "kind": "LocalQueue",
                "metadata": {"name": tenant.name, "namespace": tenant.name, "labels": plan.labels()},
                "spec": {"clusterQueue": tenant.name},
            }
        )
    for document in objects:
        check_shape(document["kind"], document, plan.matrix)
    return objects


def _flavor(plan: Plan) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if len(plan.products.values) == 1:
        spec["nodeLabels"] = {plan.products.key: plan.products.values[0]}
    return {
        "apiVersion": plan.matrix.shapes["ResourceFlavor"].api,
        "kind": "ResourceFlavor",
        "metadata": {"name": "gpu", "labels": plan.labels()},
        "spec": spec,
    }


def _quota(plan: Plan, parts: int, gpus: int) -> dict[str, int | str]:
    options = plan.options
    each = -(-plan.memory_for(options.gpus) // options.gpus)
    cpus = _CPUS_PER_GPU if options.cpus is None else max(_CPUS_PER_GPU, -(-options.cpus // options.gpus))
    quota: dict[str, int | str] = {"cpu": cpus * parts, "memory": f"{(each + 8) * parts}Gi", plan.resource: gpus}
    if options.rdma is not None:
        quota[options.rdma[0]] = -(-options.rdma[1] // options.gpus) * parts
    return quota
