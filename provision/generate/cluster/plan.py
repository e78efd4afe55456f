"""What one request comes to, decided once: everything that is written reads it here, so that no two files differ."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import PurePosixPath
from typing import Any

from provision.generate.cluster.devices import (
    Layout,
    Products,
    check_devices,
    find_layout,
    find_products,
    resource_name,
)
from provision.generate.cluster.options import RAY, SERVING, ClusterOptions, Tenant
from provision.generate.cluster.owner import Ownership, decide_owner
from provision.generate.subject import Subject
from provision.generate.tuning import Situation, container_variables
from provision.matrix.load import Matrix
from provision.records import plain, record

FILE = "cluster.toml"
_MEMORY_GIB_PER_GPU = 16
_DIGEST_SHOWN = 12
_NAME_DIGITS = 8
_STEM_MAX = 24
# What makes one piece of work another one.
_WORK = ("runner", "script", "image", "nodes", "gpus", "cpus", "memory_gib", "shm_gib", "variables", "volumes")
# These as well, but where they are not given they have no part in the name.
_WORK_IF_GIVEN = ("data", "checkpoints", "store_secret", "store_endpoint", "scale")


@record
class Plan:
    """One request with every answer that more than one file needs.

    Attributes:
        subject: What the lock says.
        options: What was asked.
        owned: Who installs the driver.
        resource: What a Pod asks for.
        products: Which nodes have such GPUs.
        layout: Into what MIG cuts them.
        name: Of the work, and of what belongs to it.
        tenant: In whose namespace the work is.
        matrix: The facts.
        warnings: What a person should know.
    """

    subject: Subject
    options: ClusterOptions
    owned: Ownership
    resource: str
    products: Products
    layout: Layout | None
    name: str
    tenant: Tenant | None
    matrix: Matrix
    warnings: tuple[str, ...] = ()

    @property
    def shm_gib(self) -> int:
        """The size of /dev/shm in GiB: what was asked, or what NCCL's guide gives a process, for each GPU."""
        return self.shm_for(self.options.gpus)

    def shm_for(self, gpus: int) -> int:
        """Return the size of /dev/shm in GiB of a Pod with so many GPUs."""
        if self.options.shm_gib is not None:
            return self.options.shm_gib
        return gpus * int(self.fact("shm_gib"))

    def memory_for(self, gpus: int) -> int:
        """Return the limit of memory in GiB; /dev/shm counts into it, so it is added where nothing was asked."""
        if self.options.memory_gib is not None:
            return self.options.memory_gib
        return gpus * _MEMORY_GIB_PER_GPU + self.shm_for(gpus)

    def fact(self, key: str) -> str:
        """Return one single value of ``cluster.toml``."""
        return str(self.matrix.setting(FILE, key).value)

    def entries(self, key: str) -> dict[str, str]:
        """Return the pairs of one setting of ``cluster.toml``."""
        return dict(self.matrix.setting(FILE, key).entries or {})

    def labels(self) -> dict[str, str]:
        """Return the labels of every object of this request."""
        # A label takes 63 characters and no colon; the annotation has the whole digest.
        shown = self.subject.digest.removeprefix("sha256:")[:_DIGEST_SHOWN]
        return {"app.kubernetes.io/managed-by": "provision", "dev.provision/lock": shown}

    def metadata(self, name: str, *, is_queued: bool = False) -> dict[str, Any]:
        """Return the head of a piece of work in its namespace."""
        labels = {"app.kubernetes.io/name": name, **self.labels()}
        if is_queued and self.options.is_queued and self.tenant is not None:
            labels[self.fact("queue_label")] = self.tenant.name
        return {
            "name": name,
            "namespace": self.options.place,
            "labels": labels,
            "annotations": {"dev.provision/lock": self.subject.digest},
        }


def make_plan(subject: Subject, options: ClusterOptions, matrix: Matrix) -> Plan:
    """Decide who installs the driver, what is offered and asked for, on which nodes and under which name.

    Raises:
        IncompatibleError: What was asked excludes itself, or the lock excludes it.
        UnknownError: The facts know no driver image, or no profiles.
        UsageError: Two options do not go together.
    """
    owned = decide_owner(subject, options, matrix)
    check_devices(subject, options, owned.owner, matrix)
    products = find_products(subject, options, matrix)
    warnings = list(owned.warnings)
    if products.gpus and not products.values:
        warnings.append(
            f"which label nodes with {', '.join(subject.gpus)} have is not known: work is not bound to them"
        )
    layout = find_layout(options, products, matrix)
    if layout is not None and owned.owner == "node":
        warnings.append(
            f"gpu-node.yml cuts the GPUs, not these files: set `gpu_mig_profile: {layout.name}` for the nodes"
        )
    if options.runner in RAY and options.has_work and subject.ray is None:
        warnings.append("no version of Ray is locked: the image must have it, as with `provision image --with ray`")
    return Plan(
        subject=subject,
        options=options,
        owned=owned,
        resource=resource_name(options, matrix),
        products=products,
        layout=layout,
        name=options.name or _derive_name(subject, options),
        tenant=next((item for item in options.tenants if item.name == options.place), None),
        matrix=matrix,
        warnings=tuple(warnings),
    )


def work_variables(plan: Plan) -> dict[str, str]:
    """Return the variables of the work: the safe ones of the facts, then what was asked."""
    options = plan.options
    facts = {"container"}
    if options.nodes > 1 and options.runner not in SERVING:
        facts.add("multi-node")
    if options.sharing != "none":
        facts.add("shared-gpu")
    situation = Situation(libraries=dict(plan.subject.libraries), facts=frozenset(facts))
    return {**container_variables(situation, plan.matrix), **options.variables}


def _derive_name(subject: Subject, options: ClusterOptions) -> str:
    """Return a name of the work that another piece of work does not have."""
    asked = {key: plain(getattr(options, key)) for key in _WORK} | {"place": options.place, "lock": subject.digest}
    asked |= {key: plain(value) for key in _WORK_IF_GIVEN if (value := getattr(options, key)) is not None}
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:_NAME_DIGITS]
    words = [word for word in options.script if not word.startswith("-")]
    stem = PurePosixPath(words[0].partition(":")[0]).stem if words else options.runner if options.has_work else "check"
    stem = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:_STEM_MAX].strip("-")
    return f"{stem if stem[:1].isalpha() else 'work'}-{digest}"
