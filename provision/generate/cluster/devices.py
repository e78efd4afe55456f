"""How GPUs are offered to Pods: whole, as MIG devices, shared or claimed; and on which nodes they are found."""

from __future__ import annotations

from typing import Any

from provision.errors import IncompatibleError, UnknownError, UsageError
from provision.generate.cluster.options import ClusterOptions
from provision.generate.cluster.shapes import check_shape
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu, MigProfile
from provision.matrix.query import find_gpus
from provision.records import record

_WAYS = {"time-slicing": "timeSlicing", "mps": "mps"}
_FILE = "cluster.toml"
_VENDOR = "10DE"


@record
class Layout:
    """Into what MIG cuts the GPUs of a node.

    Attributes:
        name: As nodes are labelled with.
        config: The configuration of mig-parted.
    """

    name: str
    config: dict[str, Any]


@record
class Products:
    """The nodes that have the GPUs of the lock.

    Attributes:
        gpus: Ids of ``gpus.toml``, those that can be cut as asked.
        key: The label.
        values: What it says there; empty where the facts do not know.
        whole: What the label of whole GPUs says, before they are cut.
    """

    gpus: tuple[str, ...] = ()
    key: str = ""
    values: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


def check_devices(subject: Subject, options: ClusterOptions, owner: str, matrix: Matrix) -> None:
    """Refuse ways to offer GPUs that exclude each other.

    Source: README of NVIDIA's device plugin, shared access to GPUs; MIG user guide.

    Raises:
        IncompatibleError: MPS together with MIG, MIG on a GPU without it.
        UsageError: More than one shared GPU or MIG device for a Pod; MPS without the operator; claims of parts.
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
            because=("MPS needs its control daemon next to the plugin, and the bare DaemonSet has none",),
            hints=("use `--sharing time-slicing`",),
        )
    if options.mig_strategy != "none":
        without = [gpu.name for gpu in _gpus(subject, matrix) if gpu.mig_max_instances == 0]
        if without:
            raise IncompatibleError(
                f"{without[0]} has no MIG",
                because=(f"the lock {subject.name} is for {', '.join(subject.gpus)}",),
                hints=("leave --mig-strategy and --mig-profile out",),
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
    if options.is_claimed and (options.sharing != "none" or options.mig_strategy != "none" or options.is_queued):
        other = (
            "--sharing" if options.sharing != "none" else "--mig-strategy" if options.mig_strategy != "none" else None
        )
        raise UsageError(
            f"--dra and {other or '--kueue'} exclude each other here",
            because=(
                "claims are of whole GPUs" if other else "the queues count resources of the device plugin, not claims",
            ),
            hints=(f"leave {other or '--kueue'} out, or --dra",),
        )


def resource_name(options: ClusterOptions, matrix: Matrix) -> str:
    """Return the extended resource a Job asks for, such as ``nvidia.com/gpu.shared``."""
    if options.mig_strategy == "mixed":
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
    check_shape("device-plugin", document, matrix)
    return document


def product_label(resource: str, matrix: Matrix) -> str:
    """Return the label that says of which product a resource's GPUs are."""
    return f"{resource}{matrix.setting(_FILE, 'product_suffix').value}"


def find_products(subject: Subject, options: ClusterOptions, matrix: Matrix) -> Products:
    """Return by which label the nodes with the lock's GPUs are found.

    GPUs of a family that cannot be cut into the profile are left out. A MIG device's product is that of its GPU and
    its profile, at the resource that it is offered as.

    Source: k8s-device-plugin, ``internal/lm/resource.go``.

    Raises:
        IncompatibleError: None of the lock's GPUs has the profile.
        UnknownError: The facts know the profiles of none of them.
    """
    gpus = _gpus(subject, matrix)
    if options.mig_profile is not None and gpus:
        gpus = _with_profile(subject, options.mig_profile, gpus, matrix)
    whole = tuple(sorted({label for gpu in gpus for label in matrix.cluster_products.get(gpu.id, ())}))
    if any(gpu.id not in matrix.cluster_products for gpu in gpus):
        # A selector that knows only some of them would keep work off the others.
        whole = ()
    offered = str(matrix.setting(_FILE, "resource").value)
    if options.mig_strategy == "mixed":
        offered = f"{matrix.setting(_FILE, 'mig_resource_prefix').value}{options.mig_profile}"
    values = whole if options.mig_profile is None else tuple(f"{item}-MIG-{options.mig_profile}" for item in whole)
    return Products(gpus=tuple(gpu.id for gpu in gpus), key=product_label(offered, matrix), values=values, whole=whole)


def find_layout(options: ClusterOptions, products: Products, matrix: Matrix) -> Layout | None:
    """Return the layout that makes the devices of the profile; ``None`` without MIG.

    Models that hold different numbers of them are told apart by their PCI device.

    Raises:
        IncompatibleError: No GPU of the facts has the profile.
    """
    if options.mig_profile is None:
        return None
    fitting = [
        (gpu, row.instances_max)
        for row in _profiles(matrix)
        if row.profile == options.mig_profile
        for gpu in row.gpus
        if not products.gpus or gpu in products.gpus
    ]
    if not fitting:
        raise IncompatibleError(
            f"no GPU that is known has the MIG profile `{options.mig_profile}`",
            because=(f"known are {', '.join(sorted({row.profile for row in _profiles(matrix)}))}",),
            hints=("choose one of them",),
        )
    devices = {gpu.id: gpu.pci_device_id for gpu in matrix.gpus}
    parts: list[dict[str, Any]] = []
    for count in sorted({count for _, count in fitting}):
        part: dict[str, Any] = {"devices": "all", "mig-enabled": True, "mig-devices": {options.mig_profile: count}}
        if len({count for _, count in fitting}) > 1:
            mine = sorted({str(devices[gpu]) for gpu, its in fitting if its == count and devices.get(gpu)})
            part = {"device-filter": [f"0x{device}{_VENDOR}" for device in mine], **part}
        parts.append(part)
    name = f"all-{options.mig_profile}"
    disabled = str(matrix.setting(_FILE, "mig_disabled").value)
    config = {
        "version": "v1",
        "mig-configs": {disabled: [{"devices": "all", "mig-enabled": False}], name: parts},
    }
    check_shape("mig-parted", config, matrix)
    return Layout(name=name, config=config)


def _with_profile(subject: Subject, profile: str, gpus: tuple[Gpu, ...], matrix: Matrix) -> tuple[Gpu, ...]:
    known: dict[str, list[str]] = {}
    for row in _profiles(matrix):
        for gpu in row.gpus:
            known.setdefault(gpu, []).append(row.profile)
    fitting = tuple(gpu for gpu in gpus if profile in known.get(gpu.id, ()))
    if fitting:
        return fitting
    names = ", ".join(subject.gpus)
    offered = list(dict.fromkeys(item for gpu in gpus for item in known.get(gpu.id, ())))
    if not offered:
        raise UnknownError(
            f"which MIG profiles {names} has is not known",
            because=("no row of planning.toml is about it",),
            hints=("leave --mig-strategy and --mig-profile out",),
        )
    raise IncompatibleError(
        f"{names} has no MIG profile `{profile}`",
        because=(f"the lock {subject.name} is for {names}", f"its profiles are {', '.join(offered)}"),
        hints=(f"use `--mig-profile {offered[0]}`",),
    )


def _gpus(subject: Subject, matrix: Matrix) -> tuple[Gpu, ...]:
    found = {gpu.id: gpu for name in subject.gpus for gpu in find_gpus(matrix, name)}
    return tuple(found.values())


def _profiles(matrix: Matrix) -> tuple[MigProfile, ...]:
    return matrix.rows("planning.toml", "mig_profile")
