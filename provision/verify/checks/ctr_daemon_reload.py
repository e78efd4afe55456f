"""A running container still has its GPUs after `systemctl daemon-reload`."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import ABSENT, FAILED, NOT_RUN
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import count_gpus, counted

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count what nvidia-smi lists inside the container afterwards."""
    del matrix
    if expected.is_in_use:
        return skipped("the GPUs are in use, and a reload could take them from running containers")
    output = host.output("daemon-reload")
    if output.status == ABSENT and expected.container_image is not None:
        return unknown(f"no container could be started from the planned `{expected.container_image}`")
    if output.status in (ABSENT, NOT_RUN):
        return skipped("no container could be started: no engine, or no image on the target")
    count = count_gpus(host, expected)
    should = counted(count, "GPU") if count else "a GPU"
    if output.status == FAILED:
        said = next((line.strip() for line in f"{output.error}\n{output.text}".splitlines() if line.strip()), "no word")
        return failed(f"nvidia-smi in the container ended with {output.code} after the reload: {said[:300]}", should)
    found = [line for line in host.daemon_reload if line.startswith("GPU ")]
    if not found or (count is not None and len(found) < count):
        return failed(f"the container lists {len(found)} GPUs after the reload", should)
    return passed(f"the container still lists {counted(len(found), 'GPU')}")
