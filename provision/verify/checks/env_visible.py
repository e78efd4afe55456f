"""CUDA_VISIBLE_DEVICES names GPUs that exist, or nothing is said."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.verify.work import count_gpus

__all__ = ["check"]

_NAME = "CUDA_VISIBLE_DEVICES"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Check each entry as the driver would, which stops at the first that is none."""
    del matrix
    value = host.environment.get(_NAME)
    if value is None:
        return passed(f"`{_NAME}` is not set")
    entries = [entry.strip() for entry in value.split(",")]
    should = "unset, or GPUs that exist"
    if entries[0] in ("", "-1"):
        return failed(f"`{_NAME}={value}` hides every GPU", should, subjects=[_NAME])
    if len(set(entries)) < len(entries):
        return failed(f"`{_NAME}={value}` names a GPU twice, and that hides all", should, subjects=[_NAME])
    try:
        gpus = host.smi.gpus
    except Unreadable as error:
        return unknown(f"`{_NAME}={value}`; {error.reason}")
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
    for place, entry in enumerate(entries):
        if not _names_one(entry, len(gpus), uuids):
            hidden = f", and hides all from place {place} on" if place else ", and hides every GPU"
            return failed(f"`{_NAME}={value}`: `{entry}` is none of {len(gpus)} GPUs{hidden}", should, subjects=[_NAME])
    count = count_gpus(host, expected)
    if expected.gpus is not None and count is not None and len(entries) < count and not entries[0].startswith("MIG-"):
        return failed(f"`{_NAME}={value}` leaves {len(entries)} of {count} GPUs", f"{count} GPUs", subjects=[_NAME])
    return passed(f"`{_NAME}={value}` names {len(entries)} of {len(gpus)} GPUs")


def _names_one(entry: str, count: int, uuids: list[str]) -> bool:
    if entry.isascii() and entry.isdigit():
        return len(entry) < 6 and int(entry) < count
    if entry.startswith("MIG-"):
        return True
    return entry.startswith("GPU-") and sum(uuid.startswith(entry) for uuid in uuids) == 1
