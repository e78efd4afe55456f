"""What the parts of a node's lock are decided from, and how one of them refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provision.matrix.load import Matrix
from provision.matrix.model import DriverBranch, Gpu
from provision.records import record
from provision.resolve.node_options import NodeOptions
from provision.resolve.request import Request
from provision.resolve.stack import FactRef, NodePackage, Stack

PACKAGES_FILE = "node_packages.toml"
ARCHITECTURE = "amd64"
"""The one architecture whose packages the facts know, as Debian calls it."""
PLATFORM = "linux/amd64"


@record
class No:
    """Why a system, or all of them, cannot have what was asked."""

    is_proved: bool
    because: str
    facts: tuple[FactRef, ...] = ()
    flags: tuple[str, ...] = ()


class RefusedError(Exception):
    """One decision cannot be made as asked; ``solve_node`` makes a refusal of it.

    Args:
        no: Why.
    """

    def __init__(self, no: No) -> None:
        super().__init__(no.because)
        self.no = no


@record
class Job:
    """A request with its names looked up.

    Attributes:
        stack: What all systems share.
        gpus: Every row that a requested GPU may be.
        branch: The driver's.
        modules: GPU architecture → flavour of the module.
    """

    request: Request
    options: NodeOptions
    matrix: Matrix
    stack: Stack
    gpus: tuple[Gpu, ...]
    branch: DriverBranch
    modules: Mapping[str, str]


def name_packages(
    names: Iterable[str], version: str | None, other: Mapping[str, str] | None = None
) -> tuple[NodePackage, ...]:
    """Return packages of one version, but for those that have another.

    Args:
        names: The packages.
        version: Theirs; absent = any.
        other: Package → its own version.
    """
    return tuple(NodePackage(name=name, version=(other or {}).get(name, version)) for name in names)
