"""Nodes that Karpenter makes when work waits for them."""

from __future__ import annotations

from typing import Any

from provision.errors import UnknownError, UsageError
from provision.generate.cluster.plan import Plan
from provision.generate.cluster.plugin import node_selector
from provision.generate.cluster.shapes import check_shape

_KEPT = "10m"


def node_pool(plan: Plan) -> dict[str, Any]:
    """Return a NodePool whose nodes have the labels that the work is bound to.

    Karpenter knows what the device plugin will write on a node from the NodePool alone: a label that stands only on
    finished nodes would keep it from making any.

    Raises:
        UnknownError: The facts know no machine with such GPUs there.
        UsageError: The lock is for no GPU of one product, or Pods ask for parts of GPUs.
    """
    options = plan.options
    kind, group, name = options.node_class or ("", "", "")
    if options.sharing != "none" or options.mig_strategy == "mixed":
        raise UsageError(
            f"--nodepool makes no nodes for {plan.resource}",
            because=("Karpenter knows whole GPUs of a machine, and none of the parts that a plugin makes of them",),
            hints=("leave --sharing and `--mig-strategy mixed` out, or make the nodes beforehand",),
        )
    if len(plan.products.values) != 1:
        products = ", ".join(plan.products.values) or "none that is known"
        raise UsageError(
            "--nodepool needs a lock for one product",
            because=(f"products of this lock: {products}",),
            hints=("name one model, as in `--gpu h100-sxm5-80gb`",),
        )
    labels = {plan.products.key: plan.products.values[0]}
    if plan.layout is not None:
        labels[plan.fact("mig_config_label")] = plan.layout.name
    if plan.owned.owner == "node":
        labels |= node_selector(plan.matrix)
    taint = {"key": plan.fact("resource"), "effect": "NoSchedule"}
    document = {
        "apiVersion": plan.matrix.shapes["NodePool"].api,
        "kind": "NodePool",
        "metadata": {"name": f"gpu-{plan.products.gpus[0]}", "labels": plan.labels()},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeClassRef": {"group": group, "kind": kind, "name": name},
                    "requirements": [
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": _machines(plan, group)}
                    ],
                    "taints": [taint],
                    "expireAfter": "Never",
                },
            },
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": _KEPT},
            "limits": {plan.fact("resource"): str(_most(plan))},
        },
    }
    check_shape("NodePool", document, plan.matrix)
    return document


def _machines(plan: Plan, group: str) -> list[str]:
    provider = plan.entries("nodepool_providers").get(group)
    if provider is None:
        raise UnknownError(
            f"which provider's nodes `{group}` makes is not known",
            because=(f"known are {', '.join(plan.entries('nodepool_providers'))}",),
            hints=("leave --nodepool out",),
        )
    found = sorted(
        {
            row.type
            for row in plan.matrix.rows("cloud/instances.toml", "instance")
            if row.provider == provider and row.gpu in plan.products.gpus and row.gpu_count >= plan.options.gpus
        }
    )
    if not found:
        raise UnknownError(
            f"no machine of {provider} with {plan.options.gpus} of {', '.join(plan.products.gpus)} is known",
            because=("cloud/instances.toml has none",),
            hints=("ask for fewer GPUs of a Pod with --gpus, or leave --nodepool out",),
        )
    return found


def _most(plan: Plan) -> int:
    shares = sum(tenant.gpus for tenant in plan.options.tenants)
    return max(shares, plan.options.pods * plan.options.gpus if plan.options.image else 1)
