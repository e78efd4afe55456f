"""Findings for people: the place, the line with a caret below the words, why, and the way out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from provision.audit.model import Finding, Source
from provision.cli.output import Output

if TYPE_CHECKING:
    from provision.audit.engine import Report
    from provision.audit.judged import Gap, Judged
    from provision.matrix.model import AuditRule
    from provision.matrix.model import Source as SourceRow

_STYLES = {"error": "error", "warn": "warning", "info": "hint"}
_WIDTH = 140


def show_findings(findings: Sequence[Finding], sources: Mapping[str, Source], output: Output) -> str:
    """Return the text of findings, a blank line between them."""
    return "\n\n".join("\n".join(_lines(finding, sources[finding.span.file], output)) for finding in findings)


def show_judged(judged: Sequence[Judged], releases: Sequence[Gap], output: Output) -> str:
    """Return what was not judged: releases that the facts do not have; on -v all else, and what was understood."""
    if output.verbosity > 0:
        lines = []
        for item in judged:
            what = item.kind if item.name in ("", item.file) else f"{item.kind} {item.name}"
            where = output.paint(f"{_printable(item.file)}: {_printable(what)}:", "label")
            lines.append(f"{where} {_printable(item.understood)}")
            lines += [f"  not judged: {_printable(gap.what)}: {_printable(gap.why)}" for gap in item.gaps]
        return "\n".join(lines)
    return "\n".join(f"not judged: {_printable(gap.what)}: {gap.why}" for gap in releases)


def show_rule(row: AuditRule, sources: Mapping[str, SourceRow], output: Output) -> str:
    """Return what a rule looks for, why, the way out, and what it rests on.

    Args:
        row: The rule.
        sources: Publications by id.
        output: Paints it.
    """
    lines = [f"{output.paint(f'{row.severity}[{row.id}]', _STYLES[row.severity])} {row.title}", "", row.why]
    lines += [f"{output.paint('hint:', 'hint')} {row.remedy}", "", "It rests on:"]
    for name in row.source:
        source = sources[name]
        lines.append(f"  {source.title}" + (f", {source.url}" if source.url else ""))
    lines.append(f"  there: {row.where}; {row.status}, confidence {row.confidence}")
    lines += [f"  because {reason}" for reason in row.because]
    return "\n".join(lines)


def count_text(report: Report, unjudged: int = 0) -> str:
    """Return one line with how many findings there are of each kind.

    Args:
        report: The report.
        unjudged: How many releases have no facts.
    """
    counts = Counter(finding.severity for finding in report.findings)
    words = {"error": "error", "warn": "warning", "info": "note"}
    parts = [_many(counts[name], word) for name, word in words.items() if counts[name]] or ["nothing found"]
    text = f"{', '.join(parts)} in {_many(len(report.sources), 'file')}"
    if fixable := sum(bool(finding.edits) for finding in report.findings):
        text += f"; --fix mends {fixable}"
    if ignored := len(report.suppressed):
        text += f"; {ignored} ignored by {'a comment' if ignored == 1 else 'comments'}"
    if report.known:
        text += f"; {len(report.known)} known by the baseline"
    if unjudged:
        text += f"; {_many(unjudged, 'release')} not judged"
    if report.unread:
        text += f"; {_many(len(report.unread), 'file')} could not be judged"
    return text


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _lines(finding: Finding, source: Source, output: Output) -> Iterator[str]:
    place = source.position(finding.span)
    mark = output.paint(f"{finding.severity}[{finding.rule}]", _STYLES[finding.severity])
    where = output.paint(f"{_printable(place.file)}:{place.line}:{place.column}:", "label")
    yield f"{where} {mark} {_printable(finding.message)}"
    number = str(place.line)
    gutter = " " * len(number)
    text, column, length = _window(place.text, place.column, place.length)
    yield f"  {number} | {_printable(text)}"
    # Tabs are printed as one blank, so that the caret stands where it should.
    caret = output.paint("^" * max(length, 1), _STYLES[finding.severity])
    yield f"  {gutter} | {' ' * _cells(text[: column - 1])}{caret}"
    for reason in finding.reasons:
        yield f"  {gutter} = because {_printable(reason)}"
    if finding.hint:
        yield f"  {gutter} = {output.paint('hint:', 'hint')} {_printable(finding.hint)}"
    if finding.edits:
        what = finding.fix or "this"
        yield f"  {gutter} = {output.paint('fix:', 'hint')} `--fix` does it: {_printable(what)}"


def _window(text: str, column: int, length: int) -> tuple[str, int, int]:
    """Return the part of a long line that is worth showing, and where the words stand in it."""
    length = min(length, max(len(text) - column + 1, 0))
    if len(text) <= _WIDTH:
        return text, column, length
    start = max(0, min(column - 1 - _WIDTH // 3, len(text) - _WIDTH))
    cut = text[start : start + _WIDTH]
    head, tail = ("…" if start else ""), ("…" if start + _WIDTH < len(text) else "")
    at = column - start + len(head)
    return f"{head}{cut}{tail}", at, max(1, min(length, len(head) + len(cut) - at + 1))


def _printable(text: str) -> str:
    """Return a text that cannot steer a terminal, character for character."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char == "\t" else "·" for char in text)


def _cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
