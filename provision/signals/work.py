"""What checks share that judge a payload which made the GPUs work: every GPU must have answered, each by its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provision.probe.output import Unreadable
from provision.probe.parse.frameworks import GpuWork, WorkOnGpu
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import name_gpu
from provision.signals.signal import Signal, failed, passed, unknown

__all__ = ["count_gpus", "counted", "has_mig", "judge_work", "name_index", "name_worker"]


_LACKS = "skipped: this GPU has no "
"""How the payload says that a type does not exist on a GPU; every other reason to skip is one to look at."""


def count_gpus(host: Snapshot, expected: Expectation) -> int | None:
    """Return how many GPUs should answer: those planned, else those nvidia-smi lists, else ``None``."""
    if expected.gpus is not None:
        return expected.gpus
    try:
        return len(host.smi.gpus) or None
    except Unreadable:
        return None


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 GPU``, ``8 GPUs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def has_mig(host: Snapshot) -> bool:
    """Tell whether MIG divides a GPU, so that programs see parts and not GPUs."""
    try:
        return any(gpu.mig_current for gpu in host.smi.gpus)
    except Unreadable:
        return False


def name_worker(host: Snapshot, worker: WorkOnGpu) -> str:
    """Return how a person finds the GPU that a framework numbers in its own order."""
    try:
        found = next((gpu for gpu in host.smi.gpus if worker.uuid and gpu.uuid == worker.uuid), None)
    except Unreadable:
        found = None
    if found is not None:
        return name_gpu(found)
    return f"GPU {worker.gpu} ({worker.name})" if worker.name else f"GPU {worker.gpu}"


def name_index(host: Snapshot, index: int) -> str:
    """Return how a person finds the GPU at a place in nvidia-smi's order."""
    try:
        gpus = host.smi.gpus
    except Unreadable:
        gpus = ()
    return name_gpu(gpus[index]) if 0 <= index < len(gpus) else f"GPU {index}"


def judge_work(
    host: Snapshot,
    work: GpuWork,
    expected: Expectation,
    tests: Sequence[str],
    *,
    fine: str,
    should: str,
    needs_all: bool = False,
) -> Signal:
    """Judge some tests on every GPU.

    Args:
        host: Where the work was done.
        work: What the payload answered.
        expected: How many GPUs there should be.
        tests: Those to look at; on every GPU at least one of them must have ended well, and none badly.
        fine: What was done, when all is well (``multiplied correctly``).
        should: What should have been found.
        needs_all: Each test must have ended well, or have been left out because the GPU has no such thing.
    """
    if work.error:
        return failed(f"{work.tool} could not begin: {work.error}", should)
    wrong = [
        (name_worker(host, worker), test, worker.tests[test].removeprefix("failed").lstrip(": "))
        for worker in work.gpus
        for test in tests
        if worker.tests.get(test, "").startswith("failed")
    ]
    if wrong:
        said = "; ".join(f"{name}: {test}: {reason or 'failed'}" for name, test, reason in wrong)
        return failed(said, should, subjects=dict.fromkeys(name for name, _, _ in wrong))
    count = None if has_mig(host) else count_gpus(host, expected)
    if not work.gpus:
        return unknown(f"{work.tool} worked on no GPU")
    if count is not None and len(work.gpus) < count:
        return failed(f"{len(work.gpus)} of {count} GPUs worked", should, subjects=_missing(host, work.gpus))
    silent = [worker for worker in work.gpus if not any(worker.tests.get(test) == "ok" for test in tests)]
    if silent:
        answers = [answer for test in tests if (answer := silent[0].tests.get(test))]
        why = answers[0] if answers else f"{work.tool} did not try it"
        return unknown(f"{name_worker(host, silent[0])}: {why}")
    if needs_all:
        untried = [
            (worker, test)
            for worker in work.gpus
            for test in tests
            if not worker.tests.get(test, "").startswith(("ok", _LACKS))
        ]
        if untried:
            worker, test = untried[0]
            why = worker.tests.get(test) or f"{work.tool} did not try it"
            return unknown(f"{name_worker(host, worker)}: {test}: {why}")
    return passed(f"{len(work.gpus)} of {counted(count or len(work.gpus), 'GPU')} {fine}")


def _missing(host: Snapshot, workers: Iterable[WorkOnGpu]) -> list[str]:
    seen = {worker.uuid for worker in workers if worker.uuid}
    try:
        return [name_gpu(gpu) for gpu in host.smi.gpus if gpu.uuid and gpu.uuid not in seen] if seen else []
    except Unreadable:
        return []
