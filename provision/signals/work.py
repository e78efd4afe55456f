"""What checks share that judge a payload which made the GPUs work: every GPU must have answered, each by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from provision.probe.output import Unreadable, read_or
from provision.probe.parse.frameworks import GpuWork, WorkOnGpu
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import name_gpu
from provision.signals.signal import Fault, Signal, failed, faulty, passed, unknown

_WRONG = re.compile(
    r"\bare wrong\b|largest error|memory gives back|is not finite|is not the same|arrived changed", re.IGNORECASE
)
"""What payloads say of a result that is not right; every other failure is one to run at all."""

_LACKS = "skipped: this GPU has no "
"""How the payload says that a type does not exist on a GPU; every other reason to skip is one to look at."""


def count_gpus(host: Snapshot, expected: Expectation) -> int | None:
    """Return how many GPUs should answer: those planned, else those nvidia-smi lists, else ``None``."""
    if expected.gpus is not None:
        return expected.gpus
    return read_or(lambda: len(host.smi.gpus) or None, None)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 GPU``, ``8 GPUs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def has_mig(host: Snapshot) -> bool:
    """Tell whether MIG divides a GPU, so that programs see parts and not GPUs."""
    return read_or(lambda: any(gpu.mig_current for gpu in host.smi.gpus), False)


def name_worker(host: Snapshot, worker: WorkOnGpu) -> str:
    """Return how a person finds the GPU that a framework numbers in its own order."""
    found = read_or(lambda: next((gpu for gpu in host.smi.gpus if worker.uuid and gpu.uuid == worker.uuid), None), None)
    if found is not None:
        return name_gpu(found)
    return f"GPU {worker.gpu} ({worker.name})" if worker.name else f"GPU {worker.gpu}"


def name_index(host: Snapshot, index: int) -> str:
    """Return how a person finds the GPU at a place in nvidia-smi's order."""
    gpus = read_or(lambda: host.smi.gpus, ())
    return name_gpu(gpus[index]) if 0 <= index < len(gpus) else f"GPU {index}"


def fault_of_test(what: str, reason: str, subject: str = "") -> Fault:
    """Return the fault of a test that failed, of the kind ``wrong`` where it ran and its result is not right."""
    kind = "wrong" if _WRONG.search(reason) else ""
    return Fault(said=f"{what}: {reason or 'failed'}", subject=subject, kind=kind)


def find_wrong_results(host: Snapshot) -> list[Fault]:
    """Return what the payloads computed wrong, each test of a GPU alone, whether a check asks for it or not."""
    found: list[Fault] = []
    for payload in ("cuda_work", "torch_work", "torch_nccl", "nccl_pair"):
        try:
            work: GpuWork = getattr(host, payload)
        except Unreadable:
            continue
        results = [(f"GPU {worker.gpu}", worker.tests) for worker in work.gpus] + [("", work.together)]
        found += [
            fault_of_test(f"{name or 'over all GPUs'}, {test}", result.partition(":")[2].strip(), name)
            for name, tests in results
            for test, result in tests.items()
            if result.startswith("failed")
        ]
    return [fault for fault in found if fault.kind == "wrong"]


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
        return faulty([fault_of_test(f"{name}: {test}", reason, name) for name, test, reason in wrong], should)
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
    return read_or(
        lambda: [name_gpu(gpu) for gpu in host.smi.gpus if gpu.uuid and gpu.uuid not in seen] if seen else [], []
    )
