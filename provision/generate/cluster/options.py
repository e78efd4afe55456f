"""What can be said about a cluster beyond the lock, checked against a grammar before anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.errors import UsageError
from provision.generate.image import check_value
from provision.records import NOTHING, record

__all__ = ["MIG_STRATEGIES", "OWNERS", "RUNNERS", "SHARINGS", "ClusterOptions", "Subject", "Tenant", "parse_tenant"]

OWNERS = ("operator", "node")
MIG_STRATEGIES = ("none", "single", "mixed")
SHARINGS = ("none", "time-slicing", "mps")
RUNNERS = ("jobset", "pytorchjob", "job")

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_RESERVED = ("default", "kube-")
_MIG_PROFILE = r"[1-7]g\.[0-9]{1,3}gb(?:\.(?:me|gfx))?"
_VARIABLE = r"[A-Z][A-Z0-9_]{0,127}"
_GPUS_MAX = 16
_NODES_MAX = 10_000
_REPLICAS_MAX = 48
_GIB_MAX = 65_536
_CPUS_MAX = 4096
_QUOTA_MAX = 1_000_000
_WORD_MAX = 4096


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
        node_drivers: System → driver that gpu-node.yml installs there; empty for the lock of an image.
    """

    name: str
    digest: str
    facts_date: str
    driver_minimum: str
    driver_branch: str | None = None
    gpus: tuple[str, ...] = ()
    libraries: Mapping[str, str] = NOTHING
    node_drivers: Mapping[str, str] = NOTHING


@record
class Tenant:
    """A namespace with a share of the GPUs."""

    name: str
    gpus: int


@record
class ClusterOptions:
    """How the lock is written down for a cluster.

    Attributes:
        owner: Who installs the driver; absent, decided by the lock.
        system: Of the nodes, an id of ``os.toml``; needed nowhere, checked where given.
        mig_strategy: How MIG devices are offered.
        mig_profile: The profile whose devices Jobs ask for, with the mixed strategy.
        sharing: How whole GPUs are shared.
        replicas: Clients a shared GPU is offered to.
        namespace: Where the Jobs go.
        tenants: Namespaces with quota, limits and isolation.
        image: Of the Jobs.
        runner: What starts training.
        script: What torchrun starts, with its arguments.
        nodes: Pods of a training.
        gpus: GPUs of each.
        cpus: Processors of each; ``memory_gib`` likewise, with its /dev/shm of ``shm_gib`` inside.
        nccl_tests_image: An image with nccl-tests on its path.
        variables: More variables of the training.

    Raises:
        UsageError: A value does not fit its grammar, or two do not go together.
    """

    owner: str | None = None
    system: str | None = None
    mig_strategy: str = "none"
    mig_profile: str | None = None
    sharing: str = "none"
    replicas: int | None = None
    namespace: str = "default"
    tenants: tuple[Tenant, ...] = ()
    image: str | None = None
    runner: str = "jobset"
    script: tuple[str, ...] = ()
    nodes: int = 1
    gpus: int = 1
    cpus: int | None = None
    memory_gib: int | None = None
    shm_gib: int | None = None
    nccl_tests_image: str | None = None
    variables: Mapping[str, str] = NOTHING

    def __post_init__(self) -> None:
        """Check every value, then what goes with what."""
        _choice("--driver-owner", self.owner, (None, *OWNERS))
        _choice("--mig-strategy", self.mig_strategy, MIG_STRATEGIES)
        _choice("--sharing", self.sharing, SHARINGS)
        _choice("--runner", self.runner, RUNNERS)
        _check("--namespace", self.namespace, _LABEL, "name of a namespace")
        if self.mig_profile is not None:
            _check("--mig-profile", self.mig_profile, _MIG_PROFILE, "MIG profile such as `1g.10gb`")
        for flag, image in (("--image", self.image), ("--nccl-tests-image", self.nccl_tests_image)):
            if image is not None:
                check_value("image reference", image, flag)
        for flag, number, most in (
            ("--nodes", self.nodes, _NODES_MAX),
            ("--gpus", self.gpus, _GPUS_MAX),
            ("--cpus", self.cpus, _CPUS_MAX),
            ("--memory-gib", self.memory_gib, _GIB_MAX),
            ("--shm-gib", self.shm_gib, _GIB_MAX),
            ("--replicas", self.replicas, _REPLICAS_MAX),
        ):
            if number is not None and not 1 <= number <= most:
                raise UsageError(
                    f"{flag} `{number}` is not from 1 to {most}",
                    hints=(f"write a whole number from 1 to {most}",),
                )
        for word in (*self.script, *self.variables.values()):
            if not word.isprintable() or not word.isascii() or len(word) > _WORD_MAX:
                raise UsageError(
                    f"{word[:80]!a} is no word of a command",
                    because=("only printable ASCII goes into a Job, and no line end",),
                )
            # Kubernetes replaces $(NAME) in commands and variables.
            if "$(" in word:
                raise UsageError(f"{word[:80]!a} holds `$(`", because=("Kubernetes would put a variable in its place",))
        for name in self.variables:
            _check("--env", name, _VARIABLE, "name of a variable")
        names = [tenant.name for tenant in self.tenants]
        if len(set(names)) < len(names):
            raise UsageError("--tenant names one namespace twice", hints=("keep one of the two",))
        self._check_together()

    def _check_together(self) -> None:
        if (self.sharing == "none") != (self.replicas is None):
            raise UsageError(
                "--sharing and --replicas go together",
                because=("a GPU is shared by so many clients, or by none",),
                hints=("write it as in `--sharing time-slicing --replicas 4`",),
            )
        if self.replicas == 1:
            raise UsageError(
                "--replicas 1 shares a GPU among nobody",
                because=("the device plugin refuses fewer than two replicas, and the node then offers no GPU at all",),
                hints=("leave out --sharing and --replicas",),
            )
        if (self.mig_strategy == "mixed") != (self.mig_profile is not None):
            raise UsageError(
                "--mig-strategy mixed and --mig-profile go together",
                because=("with the mixed strategy each profile is a resource of its own, and a Job asks for one",),
                hints=("write it as in `--mig-strategy mixed --mig-profile 1g.10gb`",),
            )
        if self.script and self.image is None:
            raise UsageError("a script needs --image to run in", hints=("build one with `provision image`",))
        if self.shm_gib is not None and self.memory_gib is not None and self.shm_gib >= self.memory_gib:
            raise UsageError(
                f"--shm-gib {self.shm_gib} leaves nothing of --memory-gib {self.memory_gib}",
                because=("what lies in /dev/shm counts as the container's memory",),
            )


def parse_tenant(text: str) -> Tenant:
    """Read ``NAME=GPUS``.

    Raises:
        UsageError: It is none, or names a namespace of Kubernetes itself.
    """
    name, equals, number = text.partition("=")
    if not equals or not re.fullmatch(r"[0-9]{1,7}", number, re.ASCII):
        raise UsageError(f"--tenant {text[:80]!a} is no NAME=GPUS", hints=("write it as in `--tenant vision=8`",))
    _check("--tenant", name, _LABEL, "name of a namespace")
    if name.startswith(_RESERVED):
        raise UsageError(f"--tenant `{name}` is a namespace of Kubernetes itself", hints=("choose another name",))
    if int(number) > _QUOTA_MAX:
        raise UsageError(f"--tenant {name}: {number} GPUs are more than {_QUOTA_MAX}")
    return Tenant(name=name, gpus=int(number))


def _choice(flag: str, value: str | None, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{flag} {value!a} is none of {', '.join(filter(None, choices))}")


_SPELLINGS = {
    "--namespace": "write small letters, digits and hyphens, as in `--namespace team-vision`",
    "--tenant": "write small letters, digits and hyphens, as in `--tenant team-vision=8`",
    "--mig-profile": "write it as in `--mig-profile 1g.10gb`",
    "--env": "write it as in `--env NCCL_DEBUG=INFO`",
}


def _check(flag: str, value: str, grammar: str, kind: str) -> None:
    if not re.fullmatch(grammar, value, re.ASCII):
        raise UsageError(f"{flag} {value[:80]!a} is no {kind}", hints=(_SPELLINGS[flag],))
