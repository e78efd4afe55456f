"""A GPU gives wrong results, or fails a diagnostic of its hardware."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.signals.dcgm import judge_tests
from provision.signals.work import find_wrong_results

SYMPTOMS = (
    r"[0-9]{1,15} of [0-9]{1,15} (?:sums|values) are wrong",
    r"\b(?:Memory|Memtest|Diagnostic|Pulse Test|Targeted (?:Stress|Power)|Memory Bandwidth)\s{1,40}\|\s{1,4}Fail\b",
    r"silent data corruption",
)

_EXPECTED = "right results on every GPU, and no failed test of `dcgmi diag`"
_UNSEEN = ("whether a longer test fails too: `dcgmi diag -r 3`",)
_TESTS = ("dcgm.diag1/hardware", "dcgm.diag2/hardware", "dcgm.diag3/hardware", "perf.nccl.node/wrong")


def examine(case: Case) -> Sign | None:
    """Look at what the GPUs were made to do; a test that could not run is no wrong result."""
    quote = case.find(*SYMPTOMS)
    wrong = case.look(find_wrong_results) or ()
    health = case.look(lambda host: judge_tests(host.read_health(), None).faults) or ()
    faults = (*wrong, *case.faults(*_TESTS), *(fault for fault in health if fault.kind == "hardware"))
    unseen = () if case.look(lambda host: host.diag_3) is not None else _UNSEEN
    return explain_faults(case, faults, expected=_EXPECTED, quote=quote, unseen=unseen) or hint(
        quote, expected=_EXPECTED, unseen=_UNSEEN
    )
