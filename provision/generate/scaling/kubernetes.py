"""A policy as a HorizontalPodAutoscaler, and what prometheus-adapter must serve it.

Thresholds become tolerances about the target, waiting times windows of stabilisation, cool-downs the periods of
policies. Where Kubernetes sets a bound the value is cut, and that is said.

Source: Kubernetes API autoscaling/v2; prometheus-adapter, docs/config.md and docs/externalmetrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from provision.errors import DataError, UsageError
from provision.generate.scaling.options import ScalingOptions
from provision.generate.scaling.policy import Policy
from provision.matrix.load import Matrix

_ACTIVITY = "gpu:activity:percent"
_SERVED = {"utilisation": "provision_gpu_activity_percent", "queue": "provision_jobs"}
_JOBS = "fleet:jobs:sum"
_BY = "max by (cluster, node, gpu, UUID, modelName)"


def autoscaler(policy: Policy, options: ScalingOptions, limits: dict[str, float]) -> dict[str, Any]:
    """Return the HorizontalPodAutoscaler of a Deployment whose Pods have a node each."""
    metric = {"name": _SERVED[policy.metric]}
    target = {"type": "AverageValue", "averageValue": quantity(policy.target)}
    if policy.metric == "utilisation":
        source: dict[str, Any] = {"type": "Pods", "pods": {"metric": metric, "target": target}}
    else:
        source = {"type": "External", "external": {"metric": metric, "target": target}}
    up = _rules(policy, policy.out_above / policy.target - 1, limits, is_up=True)
    down = _rules(policy, 1 - policy.in_below / policy.target, limits, is_up=False)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{options.name}-gpu", "namespace": options.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": options.name},
            "minReplicas": policy.minimum,
            "maxReplicas": policy.maximum,
            "metrics": [source],
            "behavior": {"scaleUp": up, "scaleDown": down},
        },
    }


def adapter_config(policy: Policy, matrix: Matrix) -> dict[str, Any]:
    """Return the rules of prometheus-adapter that serve the metric; they go beside those that are there.

    Raises:
        DataError: The facts do not say how activity is computed.
    """
    if policy.metric == "queue":
        rule = {
            "seriesQuery": f'{{__name__="{_JOBS}"}}',
            "resources": {"namespaced": False},
            "name": {"matches": f"^{_JOBS}$", "as": _SERVED["queue"]},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
        }
        return {"externalRules": [rule]}
    found = [row.expression for row in matrix.recordings if row.name == _ACTIVITY]
    if not found or _BY not in found[0]:
        raise DataError(f"alerts.toml: nothing computes `{_ACTIVITY}` as `{_BY}`")
    # The series that alerts and dashboards rest on has no Pods; the same is asked for with them.
    selected = re.sub(r"\bDCGM_[A-Z_]+\b", r"\g<0>{<<.LabelMatchers>>}", found[0])
    each = selected.replace(_BY, "max by (<<.GroupBy>>, gpu, UUID)")
    rule = {
        "seriesQuery": 'DCGM_FI_DEV_GPU_TEMP{namespace!="",pod!=""}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
        "name": {"as": _SERVED["utilisation"]},
        "metricsQuery": f"avg by (<<.GroupBy>>) ({each})",
    }
    return {"rules": [rule]}


def jobs_rules(policy: Policy) -> dict[str, Any]:
    """Return the rule file by which a Prometheus counts the jobs that wait or run.

    Raises:
        UsageError: The policy does not say where the queue is seen.
    """
    if policy.waiting_expression is None or policy.running_expression is None:
        raise UsageError(
            "the policy does not say where the queue is seen",
            because=("Kubernetes scales by a series, and none is named",),
            hints=(
                "write `waiting_expression` and `running_expression` into the policy, "
                'such as "sum(vllm:num_requests_waiting)"',
            ),
        )
    total = f"({policy.waiting_expression}) + ({policy.running_expression})"
    return {"groups": [{"name": "provision-scaling", "rules": [{"record": _JOBS, "expr": total}]}]}


def gaps(policy: Policy, limits: dict[str, float]) -> Iterator[str]:
    """Yield the ids of what Kubernetes cannot be told of this policy."""
    cooldowns = [policy.out_cooldown_seconds] + ([policy.in_cooldown_seconds] if policy.may_drain else [])
    windows = [policy.out_after_seconds] + ([policy.in_after_seconds] if policy.may_drain else [])
    steps = [policy.out_step] + ([policy.in_step] if policy.may_drain else [])
    yield "k8s.nodes"
    yield "k8s.tolerance"
    if policy.metric == "utilisation":
        yield "k8s.labels"
    if any(cooldowns):
        yield "k8s.cooldown"
    if any(length < 1 for length in cooldowns):
        yield "k8s.cooldown-none"
    if max(cooldowns) > limits["k8s.period-maximum"]:
        yield "k8s.cooldown-length"
    if max(windows) > limits["k8s.window-maximum"]:
        yield "k8s.window-length"
    if None in steps:
        yield "k8s.step"
    if not policy.may_drain:
        yield "k8s.idle"
    if policy.minimum == 0:
        yield "k8s.zero"
    if policy.handles_spot:
        yield "k8s.spot"


def quantity(value: float) -> str:
    """Return a number as Kubernetes writes it: `70`, `900m`, `214286u`."""
    micro = round(Decimal(repr(value)) * 1_000_000)
    for size, suffix in ((1_000_000, ""), (1_000, "m")):
        if micro % size == 0:
            return f"{micro // size}{suffix}"
    return f"{micro}u"


def _rules(policy: Policy, tolerance: float, limits: dict[str, float], *, is_up: bool) -> dict[str, Any]:
    if not is_up and not policy.may_drain:
        return {"selectPolicy": "Disabled"}
    after = policy.out_after_seconds if is_up else policy.in_after_seconds
    cooldown = policy.out_cooldown_seconds if is_up else policy.in_cooldown_seconds
    step = policy.out_step if is_up else policy.in_step
    return {
        "stabilizationWindowSeconds": min(round(after), round(limits["k8s.window-maximum"])),
        "tolerance": quantity(round(max(tolerance, 0.0), 6)),
        "selectPolicy": "Max",
        "policies": [
            {
                "type": "Pods",
                "value": step or policy.maximum,
                "periodSeconds": min(max(round(cooldown), 1), round(limits["k8s.period-maximum"])),
            }
        ],
    }
