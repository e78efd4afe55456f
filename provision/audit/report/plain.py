"""Findings as plain data, for ``--json`` and for the other reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.audit.judged import Judged
from provision.audit.model import Finding, Source, Span


def region_of(source: Source, span: Span) -> dict[str, int]:
    """Return a span as lines and columns, counted from 1; the end column is the one behind the last character."""
    first = source.position(span)
    last = source.position(Span(file=span.file, start=max(span.end, span.start), end=max(span.end, span.start)))
    return {"line": first.line, "column": first.column, "end_line": last.line, "end_column": last.column}


def finding_document(finding: Finding, sources: Mapping[str, Source]) -> dict[str, Any]:
    """Return a finding with its place, and with what its fix would replace."""
    document: dict[str, Any] = {
        "rule": finding.rule,
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.span.file,
        **region_of(sources[finding.span.file], finding.span),
        "reasons": list(finding.reasons),
        "hint": finding.hint or None,
        "facts": list(finding.facts),
        "fix": None,
    }
    if finding.edits:
        document["fix"] = {
            "description": finding.fix or finding.hint or finding.message,
            "edits": [
                {"file": edit.span.file, **region_of(sources[edit.span.file], edit.span), "text": edit.text}
                for edit in finding.edits
                if edit.span.file in sources
            ],
        }
    return document


def judged_document(judged: Judged) -> dict[str, Any]:
    """Return what was understood of an environment, and what was not judged and why."""
    return {
        **{key: getattr(judged, key) for key in ("file", "kind", "name", "base", "system", "python", "cuda", "cudnn")},
        "frameworks": dict(judged.frameworks),
        "not_judged": [{"what": gap.what, "why": gap.why} for gap in judged.gaps],
    }
