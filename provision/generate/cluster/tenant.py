"""A namespace for each tenant: its share of the GPUs, limits of its Pods, and a wall around them."""

from __future__ import annotations

import re
from typing import Any

from provision.generate.cluster.options import RAY, Tenant
from provision.generate.cluster.plan import FILE, Plan

_LABEL = "dev.provision/tenant"
_ENFORCE = "pod-security.kubernetes.io/enforce"


def tenant_manifests(tenant: Tenant, plan: Plan) -> list[dict[str, Any]]:
    """Return Namespace, ResourceQuota, LimitRange and NetworkPolicies of one tenant.

    Every kind of GPU that the cluster offers is counted, the ones nobody asked for with 0: a quota that names only one
    kind leaves the others free. A container without a limit of processors gets none: a default would hold back work
    that feeds several GPUs.
    """
    name = tenant.name
    whole, claims = plan.fact("resource"), f"{plan.fact('device_class')}{plan.fact('claim_quota_suffix')}"
    hard = {f"{plan.fact('quota_prefix')}{whole}": "0"}
    hard[claims if plan.options.is_claimed else f"{plan.fact('quota_prefix')}{plan.resource}"] = str(tenant.gpus)
    is_mine = plan.tenant == tenant
    # What locks memory for a network device is more than the level baseline lets a Pod do.
    level = "privileged" if is_mine and plan.options.rdma is not None else "baseline"
    small = {"cpu": "1", "memory": "1Gi"}
    documents = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {_LABEL: name, _ENFORCE: level, "pod-security.kubernetes.io/warn": "restricted"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": name},
            "spec": {"hard": hard},
        },
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "defaults", "namespace": name},
            "spec": {
                "limits": [{"type": "Container", "default": {"memory": small["memory"]}, "defaultRequest": small}]
            },
        },
        _policy(name, "deny", {}, {}),
        _policy(
            name,
            "own-namespace",
            {"ingress": [{"from": [{"podSelector": {}}]}]},
            {"egress": [{"to": [{"podSelector": {}}]}]},
        ),
        _policy(name, "names", None, {"egress": [_DNS]}),
    ]
    if is_mine and (plan.options.data is not None or plan.options.checkpoints is not None):
        # Storage is an address outside the cluster, which no selector stands for.
        documents.append(_policy(name, "object-storage", None, {"egress": [{"ports": [_store_port(plan)]}]}))
    if is_mine and plan.options.runner in RAY and plan.options.has_work:
        # The operator asks the head how its jobs are; unheard, it takes the cluster for dead.
        operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": plan.entries("ray_operator_label")}}
        ports = [{"protocol": "TCP", "port": int(port)} for port in plan.entries("ray_ports").values()]
        documents.append(_policy(name, "ray-operator", {"ingress": [{"from": [operator], "ports": ports}]}, None))
        if plan.options.scale is not None:
            # No selector stands for the API server, so that its ports are opened to every address.
            api = [{"protocol": "TCP", "port": int(port)} for port in plan.matrix.setting(FILE, "api_ports").values]
            policy = _policy(name, "ray-autoscaler", None, {"egress": [{"ports": api}]})
            policy["spec"]["podSelector"] = {"matchLabels": plan.entries("ray_head_label")}
            documents.append(policy)
    return documents


def _store_port(plan: Plan) -> dict[str, Any]:
    address = plan.options.store_endpoint or "https://"
    port = re.search(r":([0-9]{1,5})(?:/|\Z)", address)
    return {"protocol": "TCP", "port": int(port[1]) if port else 80 if address.startswith("http:") else 443}


_DNS: dict[str, Any] = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ],
    "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
}


def _policy(namespace: str, name: str, ingress: dict[str, Any] | None, egress: dict[str, Any] | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"podSelector": {}}
    spec["policyTypes"] = [kind for kind, rules in (("Ingress", ingress), ("Egress", egress)) if rules is not None]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, **(ingress or {}), **(egress or {})},
    }
