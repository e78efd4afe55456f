"""A container that asks for all GPUs gets them."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import ABSENT, FAILED, NOT_RUN
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import count_gpus, counted

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count what nvidia-smi lists inside a container."""
    del matrix
    output = host.output("container-gpu")
    if output.status in (ABSENT, NOT_RUN):
        if expected.container_image is not None:
            lines = [line.strip() for line in f"{output.error}\n{output.text}".splitlines() if line.strip()]
            said = lines[0][:300] if lines else "no engine, or the image is not on the target"
            return unknown(f"no container could be started from the planned `{expected.container_image}`: {said}")
        return skipped("no container could be started: no engine, or no image on the target")
    count = count_gpus(host, expected)
    should = counted(count, "GPU") if count else "a GPU"
    if output.status == FAILED:
        said = next((line.strip() for line in f"{output.error}\n{output.text}".splitlines() if line.strip()), "no word")
        return failed(f"the container ended with {output.code}: {said[:300]}", should)
    found = [line for line in host.container_gpus if line.startswith("GPU ")]
    if not found:
        return failed("the container lists no GPU", should)
    if count is not None and len(found) < count:
        return failed(f"the container lists {len(found)} of {count} GPUs", should)
    return (
        passed(f"the container lists {counted(len(found), 'GPU')}")
        if count
        else unknown(f"{len(found)} GPUs, and no plan says how many")
    )
