"""What a cluster needs for the health loop: a watch on each node, the Pod that proves one, and who may do what.

Sources: node-problem-detector, ``docs/custom_plugin_monitor.md``, ``pkg/custompluginmonitor/types/config.go``, and
``deployment/``: what its DaemonSet mounts, tolerates and is bound to.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from provision.errors import UsageError
from provision.generate.cluster.plan import Plan
from provision.generate.cluster.plugin import daemon_tolerations, node_selector
from provision.generate.cluster.pod import gpu_pod
from provision.generate.slurm.health import fatal_xids
from provision.matrix.load import Matrix
from provision.records import replace

NAMESPACE = "provision-health"
CONDITION = "GpuUnhealthy"
TEMPLATE = "provision-prove"
_WATCH_NAMESPACE = "provision-health-watch"

_WATCH, _LOOP = "node-problem-detector", "provision-health"
_FOLDER = "/etc/provision-health"
_CONFIG, _SCRIPT = "gpu-monitor.json", "check_gpus.sh"
_MESSAGE_MAX = 200
# A default role of Kubernetes: reads nodes, writes their conditions, makes events.
_WATCH_ROLE = "system:node-problem-detector"
_RBAC = "rbac.authorization.k8s.io"


def health_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return a namespace with the watch, and one with the template of a proof and the account that makes one of it.

    The account of ``provision fleet health`` may make Pods in its namespace and run commands in them; no Pod there may
    have more of its node than the GPUs. The watch reads the kernel's log, and is therefore elsewhere.

    Raises:
        UsageError: There is no image to prove a node with, or GPUs are offered in another way than whole.
    """
    if plan.options.image is None:
        raise UsageError(
            "--health needs --image",
            because=("a node is proved by a Pod of it",),
            hints=("name one with `--image IMAGE`",),
        )
    if plan.options.is_claimed or plan.resource != plan.fact("resource"):
        raise UsageError(
            "--health proves a node by a Pod that has all of its GPUs, each of them whole",
            hints=("leave out --dra, --sharing and --mig-profile, or --health",),
        )
    return [
        _namespace(plan, NAMESPACE, "baseline"),
        _namespace(plan, _WATCH_NAMESPACE, "privileged"),
        *_watch(plan),
        _template(plan),
        *_account(plan),
    ]


def _namespace(plan: Plan, name: str, level: str) -> dict[str, Any]:
    labels = {**plan.labels(), "pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _head(plan: Plan, name: str, *, space: str | None = NAMESPACE) -> dict[str, Any]:
    where = {} if space is None else {"namespace": space}
    return {"name": name, **where, "labels": {"app.kubernetes.io/name": name, **plan.labels()}}


def _watch(plan: Plan) -> list[dict[str, Any]]:
    """Return node-problem-detector with a plugin of its own, which runs beside another one of the cluster."""
    pod: dict[str, Any] = {
        "serviceAccountName": _WATCH,
        "tolerations": [{"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")],
    }
    if plan.owned.owner == "node":
        pod["nodeSelector"] = node_selector(plan.matrix)
    command = ["/node-problem-detector", "--logtostderr", f"--config.custom-plugin-monitor={_FOLDER}/{_CONFIG}"]
    pod["containers"] = [
        {
            "name": _WATCH,
            "image": plan.matrix.cluster_components[_WATCH].image,
            # Its other ports would meet those of another one; it needs none.
            "command": [*command, "--port=0", "--prometheus-port=0"],
            "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "resources": {side: {"cpu": "50m", "memory": "80Mi"} for side in ("limits", "requests")},
            "securityContext": {"privileged": True},
            "volumeMounts": [{"name": "config", "mountPath": _FOLDER, "readOnly": True}],
        }
    ]
    pod["volumes"] = [{"name": "config", "configMap": {"name": _LOOP, "defaultMode": 0o555}}]
    labels = {"app.kubernetes.io/name": _WATCH}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _head(plan, _WATCH, space=_WATCH_NAMESPACE)},
        _bind(plan, "ClusterRole", _WATCH_ROLE, _WATCH, name="provision-health-watch", space=_WATCH_NAMESPACE),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _head(plan, _LOOP, space=_WATCH_NAMESPACE),
            "data": {_CONFIG: _plugin(), _SCRIPT: render_check(plan.matrix)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": _head(plan, _WATCH, space=_WATCH_NAMESPACE),
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": {**labels, **plan.labels()}}, "spec": pod},
            },
        },
    ]


def _plugin() -> str:
    document = {
        "plugin": "custom",
        "pluginConfig": {
            "invoke_interval": "30s",
            "timeout": "10s",
            "max_output_length": _MESSAGE_MAX,
            # A second Xid of one kind is another message, and so a later transition than the last proof.
            "enable_message_change_based_condition_update": True,
        },
        "source": "provision-health",
        "conditions": [{"type": CONDITION, "reason": "GpusAreHealthy", "message": "nothing is wrong with the GPUs"}],
        "rules": [
            {
                "type": "permanent",
                "condition": CONDITION,
                "reason": "GpuFault",
                "path": f"{_FOLDER}/{_SCRIPT}",
                "timeout": "8s",
            }
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def render_check(matrix: Matrix) -> str:
    """Return the plugin: 0 for no problem, 1 for one, 2 for unknown; what it prints is the condition's message."""
    xids = fatal_xids(matrix)
    cases = "\n".join(f"    {code}) say={shlex.quote(text)} ;;" for code, text in sorted(xids.items()))
    return _CHECK.format(
        codes="|".join(map(str, sorted(xids))), cases=cases, missing=shlex.quote(matrix.diagnoses["gpu.missing"].title)
    )


_CHECK = r"""#!/bin/sh
# Written by `provision cluster`; change the request, not this file.
log=$(dmesg) || {{ echo "the log of the kernel cannot be read"; exit 2; }}
line=$(printf '%s\n' "$log" | grep -E 'NVRM: Xid \([^)]*\): ({codes})([^0-9]|$)' | tail -n 1)
if [ -n "$line" ]; then
    when=$(printf '%s\n' "$line" | sed -n 's/^\[ *\([0-9.]*\)\].*/\1/p')
    case $(printf '%s\n' "$line" | sed 's/.*NVRM: Xid ([^)]*): \([0-9]*\).*/\1/') in
{cases}
    esac
    echo "$say, $when s after the start"
    exit 1
fi
pci=0
for device in "${{PCI:-/sys/bus/pci/devices}}"/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
    case $(cat "$device/class" 2>/dev/null) in 0x0300* | 0x0302*) ;; *) continue ;; esac
    # One with another driver (vfio-pci) was given to a virtual machine.
    driver=$(readlink "$device/driver")
    case ${{driver##*/}} in nvidia | "") pci=$((pci + 1)) ;; esac
done
state=${{DRIVER:-/proc/driver/nvidia}}
# The operator's driver is loaded minutes after the node is ready.
if [ "$pci" -gt 0 ] && [ ! -e "$state/version" ]; then
    echo "the driver is not loaded"
    exit 2
fi
offered=$(find "$state/gpus" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
if [ "$offered" -lt "$pci" ]; then
    echo {missing}": $offered of $pci"
    exit 1
fi
echo "$offered GPUs"
"""


def _template(plan: Plan) -> dict[str, Any]:
    """Return the Pod that ``provision fleet health`` verifies a node from: it waits, and has what the image has."""
    bare = replace(plan.options, volumes=(), secrets=(), priority=None, rdma=None)
    spec = gpu_pod(replace(plan, options=bare), ("sleep", "3600"), {}, gpus=1)
    spec["tolerations"] = daemon_tolerations(plan.options, plan.matrix)
    # Which node it is for, and of how many GPUs, is said when it is made.
    spec.pop("affinity", None)
    labels = {"app.kubernetes.io/name": TEMPLATE, **plan.labels()}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": _head(plan, TEMPLATE),
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }


def _account(plan: Plan) -> list[dict[str, Any]]:
    """Return the account with what one pass of the loop does, and no more."""
    wide = [
        ("", ["nodes"], ["get", "list", "patch"]),
        ("", ["pods"], ["get", "list"]),
        ("", ["pods/eviction"], ["create"]),
    ]
    own = [
        ("", ["pods"], ["create", "delete", "watch"]),
        ("", ["pods/exec"], ["create", "get"]),
        ("", ["podtemplates"], ["get"]),
        ("coordination.k8s.io", ["leases"], ["create", "get", "update"]),
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _head(plan, _LOOP)},
        _role(plan, "ClusterRole", wide),
        _bind(plan, "ClusterRole", _LOOP, _LOOP),
        _role(plan, "Role", own),
        _bind(plan, "Role", _LOOP, _LOOP),
    ]


def _role(plan: Plan, kind: str, rules: list[tuple[str, list[str], list[str]]]) -> dict[str, Any]:
    rows = [{"apiGroups": [group], "resources": resources, "verbs": verbs} for group, resources, verbs in rules]
    head = _head(plan, _LOOP, space=None if kind == "ClusterRole" else NAMESPACE)
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": head, "rules": rows}


def _bind(
    plan: Plan, kind: str, role: str, account: str, *, name: str = _LOOP, space: str = NAMESPACE
) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": _head(plan, name, space=None if kind == "ClusterRole" else space),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": space}],
    }
