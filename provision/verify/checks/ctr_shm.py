"""Containers have shared memory enough for NCCL and data loaders."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import count_gpus

__all__ = ["check"]

_SIZE = re.compile(r"([0-9]{1,12})\s*([bkmgt]?)i?b?", re.IGNORECASE)
_EXPONENTS = {"b": 0, "": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_MOUNT = "/dev/shm"  # noqa: S108 - it is looked at, nothing is written there


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Measure /dev/shm inside a container; on a host, read what docker gives when nobody asks."""
    count = count_gpus(host, expected)
    if count is None:
        return unknown("how many GPUs there are is not known")
    full = _find_full(host, matrix.limit("ctr.shm-used"))
    if full is not None:
        return failed(f"{_MOUNT} is {full} % full", "room in the shared memory that NCCL and data loaders use")
    least_gib = matrix.limit("ctr.shm-per-gpu") * count
    if host.virtualization.is_container:
        size_kib = host.limits.get("shm_kib")
        if size_kib is None:
            return unknown("the size of /dev/shm is not known")
        where, size_gib = "the container's shared memory", size_kib / 2**20
    else:
        text = _default(host)
        if text is None:
            return skipped("each container is given its own, and docker's configuration sets no default")
        size = _SIZE.fullmatch(text.strip())
        if size is None:
            return unknown(f"docker's default for shared memory reads `{text}`")
        where, size_gib = "docker's default", int(size[1]) * 1024 ** _EXPONENTS[size[2].lower()] / 2**30
    said = f"{where} is {size_gib:.3g} GiB for {count} GPU{'s' if count != 1 else ''}"
    if size_gib < least_gib:
        return failed(said, f"{least_gib:g} GiB or more")
    return passed(said)


def _find_full(host: Snapshot, percent_max: float) -> int | None:
    """Return how full /dev/shm is where that is too full; where nobody tells, its size is judged alone."""
    try:
        systems = host.file_systems
    except Unreadable:
        return None
    for system in systems:
        if system.mount == _MOUNT and system.size_kib and system.used_kib * 100 >= system.size_kib * percent_max:
            return system.used_kib * 100 // system.size_kib
    return None


def _default(host: Snapshot) -> str | None:
    try:
        return host.docker.default_shm_size
    except Unreadable as error:
        if error.status == "absent":
            return None
        raise
