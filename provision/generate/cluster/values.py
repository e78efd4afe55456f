"""Helm values of the GPU Operator."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.devices import plugin_config
from provision.generate.cluster.manifest import to_yaml
from provision.generate.cluster.plan import Plan
from provision.generate.cluster.plugin import daemon_tolerations
from provision.generate.cluster.shapes import check_shape
from provision.generate.cluster.watching import COUNTERS
from provision.generate.monitoring import render_counters
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus, module_flavours

_PLUGIN, _ENTRY = "provision-device-plugin", "provision"
_LAYOUTS = "provision-mig-layouts"


def operator_values(plan: Plan) -> dict[str, Any]:
    """Return the values for a cluster whose driver the operator installs.

    The chart makes the ConfigMaps; the exporter is scraped by the bundle's own ServiceMonitor, not by the operator's,
    whose series have no node.
    """
    options = plan.options
    values: dict[str, Any] = {
        "driver": {
            "enabled": True,
            "version": plan.owned.driver,
            "kernelModuleType": _module_type(plan.subject, plan.matrix),
            "usePrecompiled": False,
        },
        "toolkit": {"enabled": True},
        "cdi": {"enabled": True},
        "devicePlugin": {"enabled": not options.is_claimed},
        "dcgmExporter": {"enabled": True},
        "gfd": {"enabled": True},
        "nfd": {"enabled": True},
        "mig": {"strategy": options.mig_strategy},
        "migManager": {"enabled": plan.layout is not None},
    }
    if options.has_health:
        values["daemonsets"] = {"tolerations": daemon_tolerations(options, plan.matrix)}
    if options.sharing != "none":
        data = {_ENTRY: _text(plugin_config(options, plan.matrix))}
        values["devicePlugin"]["config"] = {"create": True, "name": _PLUGIN, "default": _ENTRY, "data": data}
    if plan.layout is not None:
        # Only the label of a node chooses another layout than this one.
        disabled = plan.fact("mig_disabled")
        data = {"config.yaml": _text(plan.layout.config)}
        values["migManager"]["config"] = {"create": True, "name": _LAYOUTS, "default": disabled, "data": data}
    if options.cluster is not None:
        values["dcgmExporter"]["config"] = {"create": True, "name": COUNTERS, "data": render_counters(plan.matrix)}
        values["dcgmExporter"]["serviceMonitor"] = {"enabled": False}
    check_shape("gpu-operator", values, plan.matrix)
    return values


def _text(document: dict[str, Any]) -> str:
    return to_yaml((), (document,)).removeprefix("---\n")


def _module_type(subject: Subject, matrix: Matrix) -> str:
    """Return the flavour that all GPUs of the lock take first; ``auto`` where it names none, or they differ."""
    branch = next((row for row in matrix.driver_branches if str(row.branch) == subject.driver_branch), None)
    if branch is None or not subject.gpus:
        return "auto"
    flavours = module_flavours(matrix, branch)
    architectures = {gpu.architecture for name in subject.gpus for gpu in find_gpus(matrix, name)[:1]}
    first = {flavours[name][0] for name in architectures if name in flavours}
    return first.pop() if len(first) == 1 else "auto"
