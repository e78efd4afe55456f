"""Helm values of the GPU Operator."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.devices import plugin_config
from provision.generate.cluster.fields import check_fields
from provision.generate.cluster.manifest import to_yaml
from provision.generate.cluster.options import ClusterOptions, Subject
from provision.generate.cluster.owner import Ownership
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus, module_flavours

__all__ = ["operator_values"]

_CONFIG = "provision-device-plugin"
_ENTRY = "provision"


def operator_values(subject: Subject, options: ClusterOptions, owned: Ownership, matrix: Matrix) -> dict[str, Any]:
    """Return the values for a cluster whose driver the operator installs.

    Args:
        subject: What the lock says.
        options: What was asked.
        owned: With the driver's version.
        matrix: The facts.
    """
    values: dict[str, Any] = {
        "driver": {
            "enabled": True,
            "version": owned.driver,
            "kernelModuleType": _module_type(subject, matrix),
            "usePrecompiled": False,
        },
        "toolkit": {"enabled": True},
        "cdi": {"enabled": True},
        "devicePlugin": {"enabled": True},
        "dcgmExporter": {"enabled": True},
        "gfd": {"enabled": True},
        "nfd": {"enabled": True},
        "mig": {"strategy": options.mig_strategy},
        "migManager": {"enabled": options.mig_strategy != "none"},
    }
    if options.sharing != "none":
        values["devicePlugin"]["config"] = {
            "create": True,
            "name": _CONFIG,
            "default": _ENTRY,
            "data": {_ENTRY: to_yaml((), (plugin_config(options, matrix),)).removeprefix("---\n")},
        }
    check_fields("gpu-operator", values, matrix)
    return values


def _module_type(subject: Subject, matrix: Matrix) -> str:
    """Return the flavour that all GPUs of the lock take first; ``auto`` where it names none, or they differ."""
    branch = next((row for row in matrix.driver_branches if str(row.branch) == subject.driver_branch), None)
    if branch is None or not subject.gpus:
        return "auto"
    flavours = module_flavours(matrix, branch)
    architectures = {gpu.architecture for name in subject.gpus for gpu in find_gpus(matrix, name)[:1]}
    first = {flavours[name][0] for name in architectures if name in flavours}
    return first.pop() if len(first) == 1 else "auto"
