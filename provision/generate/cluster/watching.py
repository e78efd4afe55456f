"""What watches the GPUs of a cluster: which metrics there are, who scrapes them, and who is told."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.plan import Plan
from provision.generate.cluster.shapes import check_shape
from provision.generate.monitoring import DASHBOARDS, render_dashboard, rule_groups

COUNTERS = "provision-dcgm-counters"
"""The ConfigMap with what dcgm-exporter collects, which the operator's chart makes."""

MONITOR_CHART = "kube-prometheus-stack"
"""The chart whose Prometheus and Alertmanager are watched with, by the name of its release."""

_NAME = "provision-gpu"
_SCRAPED = "15s"
# What would say of a metric where it was scraped, in the place of whose GPU it is about.
_SCRAPER = "pod|namespace|container|service|endpoint"


def monitor_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return ServiceMonitor, PrometheusRule and the dashboards as ConfigMaps.

    Rules and dashboards are those of every fleet. The labels that they rest on are put on here: ``cluster``, ``node``
    and the job ``gpu``; ``namespace`` and ``pod`` are those of the work that has the GPU.
    """
    space = plan.fact("operator_namespace")
    labels = {**plan.entries("monitor_labels"), **plan.labels()}
    head = {"name": _NAME, "namespace": space, "labels": labels}
    exporter = plan.entries("exporter_service")
    relabelings: list[dict[str, Any]] = [
        {"targetLabel": "cluster", "replacement": plan.options.cluster},
        {"targetLabel": "job", "replacement": "gpu"},
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
        {"action": "labeldrop", "regex": _SCRAPER},
    ]
    monitor = {
        "apiVersion": plan.matrix.shapes["ServiceMonitor"].api,
        "kind": "ServiceMonitor",
        "metadata": head,
        "spec": {
            "selector": {"matchLabels": {exporter["label"]: exporter["value"]}},
            "namespaceSelector": {"matchNames": [space]},
            "endpoints": [{"port": exporter["port"], "interval": _SCRAPED, "relabelings": relabelings}],
        },
    }
    rules = {
        "apiVersion": plan.matrix.shapes["PrometheusRule"].api,
        "kind": "PrometheusRule",
        "metadata": head,
        "spec": {"groups": rule_groups(plan.matrix, plan.options.runbooks)},
    }
    for document in (monitor, rules):
        check_shape(str(document["kind"]), document, plan.matrix)
    boards = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"provision-dashboard-{name}",
                "namespace": space,
                "labels": {**plan.entries("dashboard_labels"), **plan.labels()},
            },
            "data": {f"provision-{name}.json": render_dashboard(plan.matrix, name)},
        }
        for name in DASHBOARDS
    ]
    return [monitor, rules, *boards]


def monitor_values(plan: Plan) -> dict[str, Any]:
    """Return values of the chart by which several Prometheus and Alertmanagers watch together, no two on one node.

    The operator makes a mesh of the Alertmanagers, and takes off alerts the label that tells the Prometheus apart.
    """
    count = plan.options.monitors
    apart = {"replicas": count, "podAntiAffinity": "hard", "podAntiAffinityTopologyKey": "kubernetes.io/hostname"}
    budget = {"enabled": True, "minAvailable": 1}
    return {
        "alertmanager": {"podDisruptionBudget": budget, "alertmanagerSpec": apart},
        "prometheus": {"podDisruptionBudget": budget, "prometheusSpec": dict(apart)},
    }
