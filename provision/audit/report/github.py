"""Findings as workflow commands of GitHub, which become annotations on the lines they name.

Source: GitHub's documentation of workflow commands, and the escapes of its own toolkit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.audit.model import Finding, Source
from provision.audit.report.plain import region_of

_COMMANDS = {"error": "error", "warn": "warning", "info": "notice"}


def to_annotations(findings: Sequence[Finding], sources: Mapping[str, Source]) -> str:
    """Return one line a finding."""
    return "\n".join(_annotation(finding, sources[finding.span.file]) for finding in findings)


def _annotation(finding: Finding, source: Source) -> str:
    region = region_of(source, finding.span)
    values = {
        "file": finding.span.file,
        "line": str(region["line"]),
        "endLine": str(region["end_line"]),
        "title": f"provision {finding.rule}",
    }
    if region["line"] == region["end_line"]:
        # Columns are only taken where they are on one line.
        values |= {"col": str(region["column"]), "endColumn": str(region["end_column"])}
    properties = ",".join(f"{name}={_property(value)}" for name, value in values.items())
    lines = [finding.message, *finding.reasons, *([f"hint: {finding.hint}"] if finding.hint else [])]
    return f"::{_COMMANDS[finding.severity]} {properties}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
