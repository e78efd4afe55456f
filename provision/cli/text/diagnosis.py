"""A doctor's report on one screen, and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provision.cli.facts import describe_sources
from provision.cli.output import Output
from provision.cli.text.paragraph import columns_of, wrap
from provision.doctor.engine import Finding, Report
from provision.doctor.ranks import RankFailure, Ranks
from provision.matrix.load import Matrix
from provision.matrix.model import Xid
from provision.probe.clean import clean_line

_LABEL = 10
_INDENT = "   "
_ABSENT = "not on the target"


def report_document(report: Report) -> dict[str, Any]:
    """Return a report as plain data, findings as trees."""
    return {
        "causes": [_finding(finding) for finding in report.causes],
        "notes": [_finding(finding) for finding in report.notes],
        "unseen": [{"probe": probe, "reason": clean_line(reason)} for probe, reason in report.unseen.items()],
        "broken": [{"diagnosis": name, "error": error} for name, error in report.broken.items()],
    }


def ranks_document(ranks: Ranks) -> dict[str, Any]:
    """Return what logs tell of the ranks of a job as plain data."""
    return {
        "first": None if ranks.first is None else _failure(ranks.first, ranks),
        "failed": [_failure(row, ranks) for row in ranks.failed],
        "missing": list(ranks.missing),
        "world": ranks.world,
    }


def _failure(row: RankFailure, ranks: Ranks) -> dict[str, Any]:
    return {"rank": row.rank, "logs": list(ranks.names[row.rank]), "line": row.line}


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
        "fits": [other.id for other in finding.fits],
        "fix": list(finding.fix),
        "undo": dict(diagnosis.undo),
        "unseen": list(sign.unseen),
        "seconds": sign.seconds,
        "runbook": diagnosis.runbook,
        "source": list(diagnosis.source),
        "explains": [_finding(consequence) for consequence in finding.consequences],
    }


def show_report(target: str, report: Report, output: Output, matrix: Matrix, *, is_bare: bool = False) -> str:
    """Return the lines of a report: each cause with its evidence and its fix, then what it explains.

    Args:
        target: Name of what was looked at.
        report: What was found.
        output: Decides on colour, width and detail.
        matrix: The facts, for sources.
        is_bare: No GPU is visible there, so that finding nothing means little.
    """
    columns = columns_of(output)
    lines = [output.paint(_headline(clean_line(target), report, is_bare=is_bare), "label")]
    for number, finding in enumerate(report.causes, 1):
        lines += ["", *_show_cause(number, finding, output, matrix)]
    if report.notes:
        lines += ["", "also noticed:"]
        for finding in report.notes:
            seen = f": {_join(finding.sign.seen[:1])}" if finding.sign.seen else ""
            noticed = f"{finding.diagnosis.title} ({finding.diagnosis.id}){seen}"
            lines += wrap(noticed, columns, lead=_INDENT, hanging=2 * len(_INDENT))
    lines += _show_unseen(report, columns)
    for name, error in report.broken.items():
        lines.append(f"{_INDENT}the rule {name} broke ({clean_line(error)}); this is a bug of provision")
    return "\n".join(lines)


def _show_unseen(report: Report, columns: int) -> list[str]:
    """Return what could not be seen, everything that is simply not there in one go."""
    if not report.unseen:
        return []
    absent = [probe for probe, reason in report.unseen.items() if reason.endswith((_ABSENT, "is not there"))]
    texts = [f"{_ABSENT}: {', '.join(absent)}"] if absent else []
    texts += [f"{probe}: {clean_line(reason)}" for probe, reason in report.unseen.items() if probe not in absent]
    lines = ["", "not seen:"]
    for text in texts:
        lines += wrap(text, columns, lead=_INDENT, hanging=2 * len(_INDENT))
    return lines


def _headline(target: str, report: Report, *, is_bare: bool) -> str:
    below = sum(_count(finding) for finding in report.causes) - len(report.causes)
    if not report.causes:
        found = "no NVIDIA GPU is visible, and no cause of that" if is_bare else "no known cause of a failure was found"
        return f"{target}: {found}"
    several = "" if len(report.causes) == 1 else "s"
    explained = f", which explain{'' if several else 's'} {below} more" if below else ""
    return f"{target}: {len(report.causes)} cause{several}{explained}"


def _count(finding: Finding) -> int:
    return 1 + sum(_count(consequence) for consequence in finding.consequences)


def _show_cause(number: int, finding: Finding, output: Output, matrix: Matrix) -> Iterator[str]:
    diagnosis, sign = finding.diagnosis, finding.sign
    style = "error" if diagnosis.severity in ("critical", "high") else "warning"
    tags = f"{diagnosis.severity}, {diagnosis.layer} layer, {sign.confidence} confidence"
    if finding.fits:
        tags += f"; its message has {len(finding.fits) + 1} causes"
    yield f"{number}. {output.paint(diagnosis.title, style)}"
    yield f"{_INDENT}{diagnosis.id}: {tags}"
    yield from _fields("seen", sign.seen, output)
    yield from _fields("at", [_join(sign.subjects)] if sign.subjects else (), output)
    yield from _fields("expected", [sign.expected] if sign.expected else (), output)
    yield from _fields("perhaps" if finding.fits else "cause", [diagnosis.cause], output)
    yield from _fields("or", [f"{other.id}: {other.title}" for other in finding.fits], output)
    # Where the message has several causes, the steps tell them apart.
    yield from _fields("try" if finding.fits else "fix", finding.fix, output, is_numbered=True)
    explained = [
        f"{below.diagnosis.id}: {below.sign.seen[0] if below.sign.seen else below.diagnosis.title}"
        for below in _flatten(finding.consequences)
    ]
    yield from _fields("explains", explained, output)
    yield from _fields("not seen", [_join(sign.unseen)] if sign.unseen else (), output)
    sources = describe_sources(matrix, diagnosis.source) if output.verbosity > 0 else []
    texts = [f"{source.get('title', source['id'])} {source.get('url', '')}" for source in sources]
    yield from _fields("source", texts, output)
    yield from _fields("more", [f"provision explain diagnosis/{diagnosis.id}"], output)


def _fields(label: str, texts: Sequence[str], output: Output, *, is_numbered: bool = False) -> Iterator[str]:
    """Yield texts below each other, the label before the first."""
    for position, text in enumerate(texts, 1):
        lead = f"{_INDENT}{label if position == 1 else '':<{_LABEL}}"
        number = f"{position}. " if is_numbered else ""
        yield from wrap(number + clean_line(text, 2000), columns_of(output), lead=lead, hanging=len(lead + number))


def _flatten(findings: Sequence[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from _flatten(finding.consequences)


def _join(texts: Sequence[str]) -> str:
    return "; ".join(clean_line(text) for text in texts)


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
        lines += _fields(label, [value] if value else (), output)
    return "\n".join(lines)
