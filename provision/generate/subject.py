"""What a lock of either kind says to those who write it down for a scheduler."""

from __future__ import annotations

from collections.abc import Mapping

from provision.records import NOTHING, record


@record
class Subject:
    """What a lock says, whichever kind it is.

    Attributes:
        name: For people.
        digest: ``sha256:…`` of the lock.
        facts_date: Day of the lock's facts (ISO).
        driver_minimum: Lowest driver of the stack.
        driver_branch: Branch to install where one may choose.
        gpus: Names of the GPUs asked for.
        libraries: Library → version without local part: ``nccl``, ``torch``, ``tensorflow``, ``jax``.
        ray: Version of Ray in the image; ``None`` where the lock names none.
        node_drivers: System → driver that gpu-node.yml installs there; empty for the lock of an image.
    """

    name: str
    digest: str
    facts_date: str
    driver_minimum: str
    driver_branch: str | None = None
    gpus: tuple[str, ...] = ()
    libraries: Mapping[str, str] = NOTHING
    ray: str | None = None
    node_drivers: Mapping[str, str] = NOTHING
