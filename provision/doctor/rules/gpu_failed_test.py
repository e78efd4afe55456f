"""A GPU gives wrong results, or fails a diagnostic of its hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"[0-9]{1,15} of [0-9]{1,15} (?:sums|values) are wrong",
    r"\b(?:Memory|Memtest|Diagnostic|Pulse Test|Targeted (?:Stress|Power)|Memory Bandwidth)\s{1,40}\|\s{1,4}Fail\b",
    r"silent data corruption",
)

_WRONG = re.compile(
    r"\bare wrong\b|largest error|memory gives back|is not finite|is not the same|arrived changed", re.IGNORECASE
)
_EXPECTED = "right results on every GPU, and no failed test of `dcgmi diag`"
_UNSEEN = ("whether a longer test fails too: `dcgmi diag -r 3`",)
_DIAGNOSES = ("diag", "diag_2", "diag_3")
_OF_SOFTWARE = ("deployment", "driver", "software")


def examine(case: Case) -> Sign | None:
    """Look at what the GPUs were made to do; a test that could not run is no wrong result."""
    quote = case.find(*SYMPTOMS)
    found = dict(_failures(case))
    if not found:
        return hint(quote, expected=_EXPECTED, unseen=_UNSEEN)
    return Sign(
        confidence="high",
        seen=(*found, *quoted(quote)),
        expected=_EXPECTED,
        subjects=tuple(dict.fromkeys(f"GPU {gpu}" for gpu in found.values() if gpu is not None)),
        unseen=() if case.look(lambda host: host.diag_3) is not None else _UNSEEN,
    )


def _failures(case: Case) -> Iterator[tuple[str, int | None]]:
    """Yield what went wrong and the index of the GPU, ``None`` where several took part."""
    for payload in ("cuda_work", "torch_work", "torch_nccl", "nccl_pair"):
        work = case.look(lambda host, name=payload: getattr(host, name))  # type: ignore[misc]
        for gpu in work.gpus if work is not None else ():
            for name, result in gpu.tests.items():
                if _is_wrong(result):
                    yield f"GPU {gpu.gpu}, {name}: {_reason(result)}", gpu.gpu
        for name, result in work.together.items() if work is not None else ():
            if _is_wrong(result):
                yield f"over all GPUs, {name}: {_reason(result)}", None
    run = case.look(lambda host: host.nccl_tests)
    if run is not None and run.out_of_bounds:
        yield f"nccl-tests counts {run.out_of_bounds} wrong values", None
    runs = [case.look(lambda host, name=level: getattr(host, name)) for level in _DIAGNOSES]  # type: ignore[misc]
    for tests in (*runs, case.look(lambda host: host.read_health())):
        for test in tests or ():
            if (test.category or "").lower() in _OF_SOFTWARE or test.name.lower() in _OF_SOFTWARE:
                continue
            for result in test.results:
                if result.status == "Fail":
                    where = f"GPU {result.entity}" if result.entity is not None else "the host"
                    why = f": {result.warnings[0]}" if result.warnings else ""
                    yield f"{where} fails DCGM's test {test.name}{why}", result.entity


def _is_wrong(result: str) -> bool:
    return result.startswith("failed") and _WRONG.search(result) is not None


def _reason(result: str) -> str:
    return result.partition(":")[2].strip() or result
