"""A namespace for each tenant: its share of the GPUs, limits of its Pods, and a wall around them."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.options import ClusterOptions, Tenant
from provision.matrix.load import Matrix

__all__ = ["tenant_manifests"]

_FILE = "cluster.toml"
_LABEL = "dev.provision/tenant"


def tenant_manifests(tenant: Tenant, options: ClusterOptions, resource: str, matrix: Matrix) -> list[dict[str, Any]]:
    """Return Namespace, ResourceQuota, LimitRange and NetworkPolicies of one tenant.

    Every kind of GPU that the cluster offers is counted, the ones nobody asked for with 0: a quota that names only one
    kind leaves the others free.

    Args:
        tenant: Name and share.
        options: How GPUs are offered.
        resource: What Jobs ask for.
        matrix: The facts.
    """
    name = tenant.name
    prefix = str(matrix.setting(_FILE, "quota_prefix").value)
    whole = str(matrix.setting(_FILE, "resource").value)
    hard = {f"{prefix}{whole}": "0", f"{prefix}{resource}": str(tenant.gpus)}
    container = {"cpu": str(options.cpus or 1), "memory": f"{options.memory_gib or 1}Gi"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {
                    _LABEL: name,
                    "pod-security.kubernetes.io/enforce": "baseline",
                    "pod-security.kubernetes.io/warn": "restricted",
                },
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
            "spec": {"limits": [{"type": "Container", "default": container, "defaultRequest": container}]},
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
