"""Where verify and doctor say different things of one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import machines
from verdicts import verify_hosts

from provision.doctor.case import Case
from provision.doctor.engine import Finding, diagnose
from provision.matrix.load import Matrix
from provision.probe.output import Output
from provision.signals.signal import FAIL, PASS
from provision.verify.engine import choose_checks

MATRIX = Matrix()
CHECKS = choose_checks(MATRIX, "deep")
CAUSES = {row.id: row.signals for row in MATRIX.diagnoses.values() if row.signals}


def every_finding(findings: tuple[Finding, ...]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from every_finding(finding.consequences)


def contradictions(outputs: Mapping[str, Output]) -> list[str]:
    """Return where doctor is sure of a cause whose checks passed, or knows none for a fault that has one."""
    host = machines.snapshot(outputs)
    case = Case(MATRIX, host)
    verdict = verify_hosts({host.target: host}, {host.target: case.plan}, MATRIX, CHECKS)
    signals = {row.check: row.outcome for row in verdict.results}
    report = diagnose(case)
    assert report.broken == {}
    found = {one.diagnosis.id: one for one in every_finding((*report.causes, *report.notes))}
    wrong = []
    for name, finding in found.items():
        asked = {signal.partition("/")[0] for signal in CAUSES.get(name, ())}
        is_told = any(fault.certainty == "high" for fault in case.faults(*CAUSES.get(name, ())))
        passed = asked and all(signals[check].status == PASS for check in asked)
        if finding.sign.confidence == "high" and passed and not is_told:
            wrong.append(f"{name} is certain ({'; '.join(finding.sign.seen)}), and {', '.join(sorted(asked))} passed")
    for check, signal in signals.items():
        for fault in signal.faults if signal.status == FAIL else ():
            known = {name for name, names in CAUSES.items() if {check, f"{check}/{fault.kind}"} & {*names}}
            if known and not known & set(found):
                wrong.append(f"{check} fails ({fault.said}), and doctor names none of {', '.join(sorted(known))}")
    return wrong
