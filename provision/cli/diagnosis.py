"""A doctor's report on one screen, and as data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provision.cli.facts import describe_sources
from provision.cli.output import Output
from provision.doctor.engine import Finding, Report
from provision.matrix.load import Matrix
from provision.matrix.model import Xid
from provision.probe.clean import clean_line

__all__ = ["report_document", "show_report", "show_xid", "xid_document"]

_WIDTH = 100
_LABEL = 10
_ABSENT = "not on the target"


def report_document(report: Report) -> dict[str, Any]:
    """Return a report as plain data, findings as trees."""
    return {
        "causes": [_finding(finding) for finding in report.causes],
        "notes": [_finding(finding) for finding in report.notes],
        "unseen": [{"probe": probe, "reason": clean_line(reason)} for probe, reason in report.unseen.items()],
        "broken": [{"diagnosis": name, "error": error} for name, error in report.broken.items()],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    diagnosis, sign = finding.diagnosis, finding.sign
    return {
        "diagnosis": diagnosis.id,
        "title": diagnosis.title,
        "layer": diagnosis.layer,
        "severity": diagnosis.severity,
        "confidence": sign.confidence,
        "seen": [clean_line(text) for text in sign.seen],
        "expected": sign.expected,
        "subjects": list(sign.subjects),
        "cause": diagnosis.cause,
        "fix": list(finding.fix),
        "undo": dict(diagnosis.undo),
        "unseen": list(sign.unseen),
        "seconds": sign.seconds,
        "runbook": diagnosis.runbook,
        "source": list(diagnosis.source),
        "explains": [_finding(consequence) for consequence in finding.consequences],
    }


def show_report(target: str, report: Report, output: Output, matrix: Matrix) -> str:
    """Return the lines of a report: each cause with its evidence and its fix, then what it explains."""
    lines = [output.paint(_headline(target, report), "label")]
    for number, finding in enumerate(report.causes, 1):
        lines += ["", *_show_cause(number, finding, output, matrix)]
    if report.notes:
        lines += ["", "also noticed:"]
        for finding in report.notes:
            lines += _wrap("", f"{finding.diagnosis.id}: {finding.diagnosis.title}; {_join(finding.sign.seen[:1])}")
    lines += _show_unseen(report)
    for name, error in report.broken.items():
        lines.append(f"  the rule {name} broke ({clean_line(error)}); this is a bug of provision")
    return "\n".join(lines)


def _show_unseen(report: Report) -> list[str]:
    """Return what could not be seen, everything that is simply not there in one go."""
    if not report.unseen:
        return []
    absent = [probe for probe, reason in report.unseen.items() if reason.endswith((_ABSENT, "is not there"))]
    lines = ["", "not seen:"]
    lines += _wrap("", f"{_ABSENT}: {', '.join(absent)}") if absent else []
    for probe, reason in report.unseen.items():
        lines += _wrap("", f"{probe}: {clean_line(reason)}") if probe not in absent else []
    return lines


def _headline(target: str, report: Report) -> str:
    below = sum(_count(finding) for finding in report.causes)
    if not report.causes:
        return f"{target}: no known cause of a failure was found"
    several = "" if len(report.causes) == 1 else "s"
    explained = f", which explain{'' if several else 's'} {below} more" if below else ""
    return f"{target}: {len(report.causes)} cause{several}{explained}"


def _count(finding: Finding) -> int:
    return sum(1 + _count(consequence) for consequence in finding.consequences)


def _show_cause(number: int, finding: Finding, output: Output, matrix: Matrix) -> Iterator[str]:
    diagnosis, sign = finding.diagnosis, finding.sign
    style = "error" if diagnosis.severity in ("critical", "high") else "warning"
    tags = f"{diagnosis.severity}, {diagnosis.layer} layer, {sign.confidence} confidence"
    yield f"{number}. {output.paint(diagnosis.title, style)}"
    yield f"   {diagnosis.id}: {tags}"
    for position, seen in enumerate(sign.seen):
        yield from _wrap("seen" if position == 0 else "", clean_line(seen))
    if sign.subjects:
        yield from _wrap("at", _join(sign.subjects))
    if sign.expected:
        yield from _wrap("expected", sign.expected)
    yield from _wrap("cause", diagnosis.cause)
    for position, step in enumerate(finding.fix, 1):
        yield from _wrap("fix" if position == 1 else "", f"{position}. {step}")
    for position, consequence in enumerate(_flatten(finding.consequences)):
        said = clean_line(consequence.sign.seen[0]) if consequence.sign.seen else consequence.diagnosis.title
        yield from _wrap("explains" if position == 0 else "", f"{consequence.diagnosis.id}: {said}")
    if sign.unseen:
        yield from _wrap("not seen", _join(sign.unseen))
    sources = describe_sources(matrix, diagnosis.source) if output.verbosity > 0 else []
    for position, source in enumerate(sources):
        yield from _wrap(
            "source" if position == 0 else "", f"{source.get('title', source['id'])} {source.get('url', '')}"
        )
    yield from _wrap("more", f"{diagnosis.runbook}, `provision explain diagnosis/{diagnosis.id}`")


def _flatten(findings: Sequence[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from _flatten(finding.consequences)


def _join(texts: Sequence[str]) -> str:
    return "; ".join(clean_line(text) for text in texts)


def _wrap(label: str, text: str) -> list[str]:
    lead = f"   {label:<{_LABEL}}" if label else " " * (3 + _LABEL)
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * (3 + _LABEL),
        break_long_words=False,
        break_on_hyphens=False,
    )


def xid_document(row: Xid, matrix: Matrix) -> dict[str, Any]:
    """Return a row of the Xid catalogue as plain data."""
    return {
        "code": row.code,
        "mnemonic": row.mnemonic,
        "meaning": row.meaning,
        "severity": row.severity,
        "action": row.action,
        "investigate": row.investigate,
        "advice": row.advice,
        "sources": describe_sources(matrix, row.source),
    }


def show_xid(row: Xid, output: Output) -> str:
    """Return the lines of a row of the Xid catalogue."""
    lines = [output.paint(f"Xid {row.code}: {row.meaning}", "label")]
    fields: Mapping[str, str | None] = {
        "name": row.mnemonic,
        "severity": row.severity,
        "action": row.action,
        "then": row.investigate,
        "advice": row.advice,
    }
    for label, value in fields.items():
        if value:
            lines += _wrap(label, value)
    return "\n".join(lines)
