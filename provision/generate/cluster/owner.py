"""Who installs the driver: the GPU Operator or gpu-node.yml, never both."""

from __future__ import annotations

from provision.errors import IncompatibleError, UnknownError
from provision.generate.cluster.options import ClusterOptions
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.matrix.query import secure_minimums
from provision.records import record
from provision.versions import parse


@record
class Ownership:
    """Who installs the driver.

    Attributes:
        owner: ``operator`` or ``node``.
        driver: Version the operator installs; absent where the node has its own.
        because: One sentence.
        warnings: What a person should know.
    """

    owner: str
    driver: str | None = None
    because: str
    warnings: tuple[str, ...] = ()


def decide_owner(subject: Subject, options: ClusterOptions, matrix: Matrix) -> Ownership:
    """Return who owns the driver; a lock that has one for nodes gives it to the nodes.

    Raises:
        IncompatibleError: The operator is to install a driver on nodes that the lock gives one.
        UnknownError: The facts know no driver image of the stack's branch.
    """
    if options.owner != "operator" and (subject.node_drivers or options.owner == "node"):
        return _node(subject, options)
    if subject.node_drivers:
        system, driver = next(iter(subject.node_drivers.items()))
        raise IncompatibleError(
            "two would install the driver",
            because=(
                f"the lock {subject.name} has gpu-node.yml install {driver} on {system}",
                "with --driver-owner operator the GPU Operator would load another over it",
            ),
            hints=(
                "leave --driver-owner out: the nodes keep their driver",
                "take the lock of an image (provision.lock) and set `gpu_k8s_driver_owner: operator` on the nodes",
            ),
        )
    return _operator(subject, options, matrix)


def _node(subject: Subject, options: ClusterOptions) -> Ownership:
    if subject.node_drivers:
        if options.system is not None and options.system not in subject.node_drivers:
            raise UnknownError(
                f"the lock {subject.name} has no driver for {options.system}",
                because=(f"it has one for {', '.join(subject.node_drivers)}",),
                hints=(f"`provision node lock --os {options.system}` writes one",),
            )
        return Ownership(owner="node", because=f"gpu-node.yml installs it from the lock {subject.name}")
    return Ownership(
        owner="node",
        because="--driver-owner node: the nodes have it already",
        warnings=(f"no lock says which driver the nodes have; the stack needs {subject.driver_minimum} or newer",),
    )


def _operator(subject: Subject, options: ClusterOptions, matrix: Matrix) -> Ownership:
    branch = subject.driver_branch
    found = next((row for row in matrix.driver_images if str(row.branch) == branch), None)
    way_out = (
        "let the nodes have it: `provision node lock`, then this command with `--lock provision_lock.yml`",
        "or say that they have it: `--driver-owner node`",
    )
    if found is None:
        known = ", ".join(str(row.branch) for row in matrix.driver_images)
        raise UnknownError(
            f"no driver image of branch {branch or 'unknown'} is known",
            because=(f"the lock {subject.name} recommends it", f"the facts know images of {known}"),
            hints=way_out,
        )
    if parse(found.version) < parse(subject.driver_minimum):
        raise IncompatibleError(
            f"the driver image {found.version} is too old",
            because=(f"the stack needs {subject.driver_minimum} or newer",),
            hints=way_out,
        )
    if options.system is not None and options.system not in found.systems:
        raise UnknownError(
            f"no driver image of {found.version} for {options.system} is known",
            because=(f"it is built for {', '.join(found.systems)}",),
            hints=way_out,
        )
    floor = secure_minimums(matrix).get(found.branch, (None, ""))[0]
    warnings: tuple[str, ...] = ()
    if floor is not None and parse(found.version) < parse(floor):
        warnings = (f"driver image {found.version} is below {floor}, the lowest of its branch without a known fault",)
    return Ownership(
        owner="operator",
        driver=found.version,
        because=f"branch {branch} is the stack's; {found.version} is its driver image",
        warnings=warnings,
    )
