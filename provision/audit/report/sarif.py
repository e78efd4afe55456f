"""Findings as SARIF, the format that code scanning services read.

Source: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard, 27 March 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from provision.audit.model import Finding, Source, Span
from provision.audit.report.plain import region_of
from provision.matrix.model import AuditRule

# Of the standard, not of this program.
_VERSION = ".".join(("2", "1", "0"))
_LEVELS = {"error": "error", "warn": "warning", "info": "note"}
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def to_sarif(
    findings: Sequence[Finding],
    suppressed: Sequence[Finding],
    known: Sequence[Finding],
    sources: Mapping[str, Source],
    rules: Mapping[str, AuditRule],
    *,
    version: str,
    facts_date: str,
    schema: str,
    rules_url: str = "",
) -> dict[str, Any]:
    """Return the log of one run.

    Args:
        findings: Those that stand.
        suppressed: Those that a comment covers; they are in the log, marked as such.
        known: Those that a baseline covers, likewise.
        sources: Files by name.
        rules: The rules that ran.
        version: Of this program.
        facts_date: The day of the facts.
        schema: Address of the schema of the standard.
        rules_url: Address below which each rule has its page, empty for none.
    """
    names = list(rules)
    results = [_result(item, sources, names) for item in findings]
    results += [_result(item, sources, names, suppressed_by="inSource") for item in suppressed]
    results += [_result(item, sources, names, suppressed_by="external") for item in known]
    return {
        "$schema": schema,
        "version": _VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "provision",
                        "fullName": "provision check",
                        "semanticVersion": version,
                        "rules": [_rule(row, rules_url) for row in rules.values()],
                        "properties": {"factsDate": facts_date},
                    }
                },
                "columnKind": "unicodeCodePoints",
                "artifacts": [{"location": _location(name)} for name in sources],
                "results": results,
            }
        ],
    }


def _rule(row: AuditRule, rules_url: str) -> dict[str, Any]:
    page = {"helpUri": f"{rules_url.rstrip('/')}/{row.id}.md"} if rules_url else {}
    return {
        **page,
        "id": row.id,
        "shortDescription": {"text": row.title},
        "fullDescription": {"text": row.why},
        "help": {"text": row.remedy},
        "defaultConfiguration": {"level": _LEVELS[row.severity]},
        "properties": {"tags": ["gpu", "cuda"], "sources": list(row.source)},
    }


def _result(
    finding: Finding, sources: Mapping[str, Source], names: Sequence[str], *, suppressed_by: str = ""
) -> dict[str, Any]:
    source = sources[finding.span.file]
    text = ". ".join([finding.message, *finding.reasons, *([finding.hint] if finding.hint else [])])
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [
            {"physicalLocation": {"artifactLocation": _location(source.file), "region": _region(source, finding.span)}}
        ],
        "partialFingerprints": {"finding/v1": _fingerprint(finding, source)},
    }
    if finding.rule in names:
        result["ruleIndex"] = names.index(finding.rule)
    if finding.edits and all(edit.span.file in sources for edit in finding.edits):
        result["fixes"] = [_fix(finding, sources)]
    if suppressed_by:
        result["suppressions"] = [{"kind": suppressed_by}]
    return result


def _fix(finding: Finding, sources: Mapping[str, Source]) -> dict[str, Any]:
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in finding.edits:
        region = _region(sources[edit.span.file], edit.span)
        changes.setdefault(edit.span.file, []).append({"deletedRegion": region, "insertedContent": {"text": edit.text}})
    return {
        "description": {"text": finding.fix or finding.hint or finding.message},
        "artifactChanges": [
            {"artifactLocation": _location(name), "replacements": replacements}
            for name, replacements in changes.items()
        ],
    }


def _region(source: Source, span: Span) -> dict[str, int]:
    region = region_of(source, span)
    return {
        "startLine": region["line"],
        "startColumn": region["column"],
        "endLine": region["end_line"],
        "endColumn": region["end_column"],
    }


def _location(name: str) -> dict[str, str]:
    """Return where a file is: relative to the checkout, or absolute where the name is."""
    quoted = "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in name.encode())
    if name.startswith("/"):
        return {"uri": f"file://{quoted}"}
    return {"uri": quoted.removeprefix("./"), "uriBaseId": "%SRCROOT%"}


def _fingerprint(finding: Finding, source: Source) -> str:
    """Return what tells a finding apart when lines above it come and go."""
    place = source.position(finding.span)
    parts = (finding.rule, finding.span.file, place.text.strip(), finding.message)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
