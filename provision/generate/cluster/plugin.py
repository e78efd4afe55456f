"""Device plugin and feature discovery as a DaemonSet, for nodes whose driver and toolkit gpu-node.yml has installed."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.devices import plugin_config
from provision.generate.cluster.manifest import to_yaml
from provision.generate.cluster.options import ClusterOptions
from provision.matrix.load import Matrix

TAINT = "dev.provision/unhealthy"
"""Key of the taint by which `provision fleet health` takes a node out, and of the annotation with its reason."""

_NAME = "provision-device-plugin"
_NAMESPACE = "kube-system"
_SOCKETS = "/var/lib/kubelet/device-plugins"
_CONFIG = "/etc/provision"
_DISCOVERY = "/usr/bin/gpu-feature-discovery"
# Node Feature Discovery reads files here; role gpu_k8s has one as well.
_FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"
_FILE = "cluster.toml"


def node_selector(matrix: Matrix) -> dict[str, str]:
    """Return the label that role gpu_k8s writes on nodes that own their driver.

    Node Feature Discovery reads it from a file and puts its own name in front.
    """
    return {f"{matrix.setting(_FILE, 'feature_namespace').value}/provision-driver-owner": "node"}


def daemon_tolerations(options: ClusterOptions, matrix: Matrix) -> list[dict[str, str]]:
    """Return what lets daemons of GPUs onto nodes that work is kept off: without them a node cannot be proved."""
    keys = [str(matrix.setting(_FILE, "resource").value), *([TAINT] if options.has_health else [])]
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


def plugin_manifests(options: ClusterOptions, matrix: Matrix) -> list[dict[str, Any]]:
    """Return RuntimeClass, ConfigMap and DaemonSet.

    The DaemonSet runs only where the driver belongs to the node, so it never meets the one of a GPU Operator. Beside
    the plugin it says of which product the GPUs are, which work is bound to. Where Pods claim GPUs there is no plugin.
    """
    runtime = str(matrix.setting(_FILE, "runtime_class").value)
    labels = {"app.kubernetes.io/name": _NAME, "app.kubernetes.io/managed-by": "provision"}
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": runtime},
        "handler": runtime,
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE, "labels": labels},
        "data": {"config.yaml": to_yaml((), (plugin_config(options, matrix),)).removeprefix("---\n")},
    }
    container = {
        "name": "device-plugin",
        "image": matrix.cluster_components["device-plugin"].image,
        "env": [{"name": name, "value": value} for name, value in _variables(options).items()],
        "securityContext": _security(options),
        "volumeMounts": [
            {"name": "sockets", "mountPath": _SOCKETS},
            {"name": "config", "mountPath": _CONFIG, "readOnly": True},
        ],
    }
    discovery = {
        "name": "gpu-feature-discovery",
        "image": matrix.cluster_components["device-plugin"].image,
        "command": [_DISCOVERY],
        "env": container["env"],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "features", "mountPath": _FEATURES},
            {"name": "sys", "mountPath": "/sys"},
            {"name": "config", "mountPath": _CONFIG, "readOnly": True},
        ],
    }
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "runtimeClassName": runtime,
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": node_selector(matrix),
                    "tolerations": daemon_tolerations(options, matrix),
                    "containers": [discovery] if options.is_claimed else [container, discovery],
                    "volumes": [
                        {"name": "sockets", "hostPath": {"path": _SOCKETS, "type": "Directory"}},
                        {"name": "config", "configMap": {"name": _NAME}},
                        {"name": "features", "hostPath": {"path": _FEATURES, "type": "DirectoryOrCreate"}},
                        {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}},
                    ],
                },
            },
        },
    }
    return [runtime_class, config, daemon]


def _variables(options: ClusterOptions) -> dict[str, str]:
    """Return the plugin's variables; with MIG it must see the devices that watch all instances.

    Source: Helm chart of NVIDIA's device plugin, ``daemonset-device-plugin.yml``.
    """
    variables = {"CONFIG_FILE": f"{_CONFIG}/config.yaml"}
    if options.mig_strategy != "none":
        variables["NVIDIA_MIG_MONITOR_DEVICES"] = "all"
    return variables


def _security(options: ClusterOptions) -> dict[str, Any]:
    """Return the least the plugin can do with; MIG devices need SYS_ADMIN.

    Source: Helm chart of NVIDIA's device plugin, ``_helpers.tpl``: ``requiresCapSysAdmin``.
    """
    if options.mig_strategy != "none":
        return {"capabilities": {"add": ["SYS_ADMIN"]}}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
