"""How GPUs are offered to Pods: whole, as MIG devices, or shared; and the resource a Job then asks for."""

from __future__ import annotations

from typing import Any

from provision.errors import IncompatibleError, UsageError
from provision.generate.cluster.fields import check_fields
from provision.generate.cluster.options import ClusterOptions, Subject
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus

__all__ = ["check_devices", "plugin_config", "resource_name"]

_WAYS = {"time-slicing": "timeSlicing", "mps": "mps"}
_FILE = "cluster.toml"


def check_devices(subject: Subject, options: ClusterOptions, owner: str, matrix: Matrix) -> None:
    """Refuse ways to offer GPUs that exclude each other.

    Source: README of NVIDIA's device plugin, shared access to GPUs; MIG user guide.

    Raises:
        IncompatibleError: MPS together with MIG, MIG on a GPU without it.
        UsageError: More than one shared GPU or MIG device for a Pod; MPS without the operator.
    """
    if options.sharing == "mps" and options.mig_strategy != "none":
        raise IncompatibleError(
            "--sharing mps and MIG exclude each other",
            because=("the device plugin shares with MPS only GPUs on which MIG is off",),
            hints=("use `--sharing time-slicing`, or leave --mig-strategy out",),
        )
    if options.sharing == "mps" and owner == "node":
        raise UsageError(
            "--sharing mps needs the GPU Operator",
            because=("MPS needs its control daemon beside the plugin, and the bare DaemonSet has none",),
            hints=("use `--sharing time-slicing`",),
        )
    if options.mig_strategy != "none":
        without = [
            gpu.name for name in subject.gpus for gpu in find_gpus(matrix, name)[:1] if gpu.mig_max_instances == 0
        ]
        if without:
            raise IncompatibleError(
                f"{without[0]} has no MIG",
                because=(f"the lock {subject.name} is for {', '.join(subject.gpus)}",),
                hints=("leave --mig-strategy out",),
            )
    if options.gpus > 1 and (options.sharing != "none" or options.mig_strategy != "none"):
        what = "shared GPU" if options.sharing != "none" else "MIG device"
        raise UsageError(
            f"--gpus {options.gpus}: a Pod gets one {what}",
            because=(
                "more shared GPUs give no more of a GPU, and the plugin refuses them"
                if options.sharing != "none"
                else "a CUDA program sees one MIG device",
            ),
            hints=("use `--gpus 1`",),
        )


def resource_name(options: ClusterOptions, matrix: Matrix) -> str:
    """Return the extended resource a Job asks for, such as ``nvidia.com/gpu.shared``."""
    if options.mig_profile is not None:
        name = f"{matrix.setting(_FILE, 'mig_resource_prefix').value}{options.mig_profile}"
    else:
        name = str(matrix.setting(_FILE, "resource").value)
    return f"{name}{matrix.setting(_FILE, 'shared_suffix').value}" if options.sharing != "none" else name


def plugin_config(options: ClusterOptions, matrix: Matrix) -> dict[str, Any]:
    """Return the configuration file of the device plugin.

    A shared GPU has a name of its own, so that no Job takes it for a whole one.
    """
    document: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": options.mig_strategy}}
    if options.sharing != "none":
        shared = resource_name(options, matrix).removesuffix(str(matrix.setting(_FILE, "shared_suffix").value))
        way: dict[str, Any] = {"renameByDefault": True}
        if options.sharing == "time-slicing":
            way["failRequestsGreaterThanOne"] = True
        way["resources"] = [{"name": shared, "replicas": options.replicas}]
        document["sharing"] = {_WAYS[options.sharing]: way}
    check_fields("device-plugin", document, matrix)
    return document
