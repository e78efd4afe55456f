"""What DCGM's own diagnostics add up to."""

from __future__ import annotations

from collections.abc import Sequence

from provision.matrix.load import Matrix
from provision.probe.output import ABSENT, HUNG
from provision.probe.parse.measurements import DiagResult, DiagTest
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.signal import Fault, Signal, failed, passed, unknown
from provision.signals.work import count_gpus, counted

_PASS = "Pass"  # noqa: S105 - no password
_BAD = ("Fail", "Warn")
_NOT_ASKED = "Skip"
_TESTS_SHOWN = 4


def judge_diagnosis(host: Snapshot, expected: Expectation, *, level: int) -> Signal:
    """Judge one level of ``dcgmi diag``.

    The order of verdicts: out of time, nothing ran, something failed, something did not run, a contradiction, a pass.
    """
    probe = "dcgmi-diag" if level == 1 else f"dcgmi-diag-{level}"
    output = host.output(probe)
    if output.status == HUNG:
        return unknown(
            f"`dcgmi diag -r {level}` did not end within its time", remedy="Look for a hung GPU in the kernel log."
        )
    if output.status == ABSENT:
        return unknown(
            "there is no `dcgmi` on the target",
            remedy="Install DCGM: `datacenter-gpu-manager-4-cuda12` or `-cuda13`, as the driver has it.",
        )
    tests: tuple[DiagTest, ...] = {1: lambda: host.diag, 2: lambda: host.diag_2, 3: lambda: host.diag_3}[level]()
    return judge_tests(tests, count_gpus(host, expected))


def judge_tests(tests: Sequence[DiagTest], gpus: int | None) -> Signal:
    """Judge the tests of one run.

    Args:
        tests: In the order of the tool.
        gpus: How many GPUs there should be; ``None`` when nobody knows.
    """
    asked = [(test, result) for test in tests for result in _results_of(test) if result.status != _NOT_ASKED]
    if not asked:
        return unknown("no test of dcgmi diag ran")
    wrong = [(test, result) for test, result in asked if result.status in _BAD]
    if wrong:
        said = list(dict.fromkeys(_describe(test, result) for test, result in wrong))
        more = f"; {len(said) - _TESTS_SHOWN} more" if len(said) > _TESTS_SHOWN else ""
        subjects = dict.fromkeys(_subject(test, result) for test, result in wrong)
        faults = [_fault_of(test, result) for test, result in wrong]
        return failed("; ".join(said[:_TESTS_SHOWN]) + more, "Pass of every test", subjects=subjects, faults=faults)
    silent = [(test, result) for test, result in asked if result.status != _PASS]
    if silent:
        test, result = silent[0]
        return unknown(f"{_subject(test, result)} has the result `{result.status}`")
    empty = next((test for test in tests if not _results_of(test)), None)
    if empty is not None:
        return unknown(f"{empty.name} has no result")
    odd = next(((test, result) for test, result in asked if result.error_ids), None)
    if odd is not None:
        test, result = odd
        return unknown(f"{_subject(test, result)} contradicts itself: Pass, with error {result.error_ids[0]}")
    seen = {result.entity for _, result in asked if result.entity is not None}
    if seen and gpus is not None and len(seen) < gpus:
        return unknown(f"dcgmi diag tested {len(seen)} of {gpus} GPUs")
    skipped = sum(all(result.status == _NOT_ASKED for result in _results_of(test)) for test in tests)
    on = f" on {counted(len(seen), 'GPU')}" if seen else ""
    aside = f", {skipped} not asked" if skipped else ""
    return passed(f"{counted(len(tests) - skipped, 'test')} passed{on}{aside}")


def _fault_of(test: DiagTest, result: DiagResult) -> Fault:
    """Return a fault; tests of the software around DCGM say nothing of a GPU, and a warning is no wrong result."""
    is_software = {(test.category or "").lower(), test.name.lower()} & {"deployment", "driver", "software"}
    subject = f"GPU {result.entity}" if result.entity is not None else ""
    kind = "hardware" if result.status == "Fail" and not is_software else ""
    return Fault(said=_describe(test, result), subject=subject, kind=kind)


def _results_of(test: DiagTest) -> list[DiagResult]:
    """Return what a test says: its results, and the tool's own summary where that is worse or all there is."""
    results = list(test.results)
    if test.summary is None:
        return results
    statuses = {result.status for result in results}
    is_worse = test.summary.status not in (_PASS, _NOT_ASKED, *statuses)
    return [*results, test.summary] if is_worse or not results else results


def _subject(test: DiagTest, result: DiagResult) -> str:
    if result.entity is not None:
        return f"{test.name} on GPU {result.entity}"
    return f"{test.name} on a {result.group}" if result.group else test.name


def _describe(test: DiagTest, result: DiagResult) -> str:
    verb = "fails" if result.status == "Fail" else "warns"
    why = f": {result.warnings[0]}" if result.warnings else ""
    code = f" (DCGM error {result.error_ids[0]})" if result.error_ids else ""
    return f"{_subject(test, result)} {verb}{code}{why}"


def dcgm_diag1(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the document of ``dcgmi diag -r 1``; an unknown one is never a pass."""
    return judge_diagnosis(host, expected, level=1)


def dcgm_diag2(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the document of ``dcgmi diag -r 2``; an unknown one is never a pass."""
    return judge_diagnosis(host, expected, level=2)


def dcgm_diag3(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the document of ``dcgmi diag -r 3``; an unknown one is never a pass."""
    return judge_diagnosis(host, expected, level=3)
