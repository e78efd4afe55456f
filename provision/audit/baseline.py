"""Known findings: kept out by rule, file and the text of the line, so that lines may move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from provision.audit.model import Finding, Source
from provision.errors import UsageError
from provision.records import record

_VERSION = 1


@record
class Known:
    """One entry: findings of a rule on lines with one text in one file."""

    rule: str
    file: str
    text: str


def known_of(finding: Finding, source: Source, name: Callable[[str], str]) -> Known:
    """Return the entry that a finding belongs to.

    Args:
        finding: The finding.
        source: The file that it points into.
        name: Turns a file into its name in the baseline.
    """
    return Known(rule=finding.rule, file=name(finding.span.file), text=source.position(finding.span).text.strip())


def baseline_document(
    findings: Iterable[Finding], sources: Mapping[str, Source], name: Callable[[str], str]
) -> dict[str, Any]:
    """Return a baseline as plain data, in order."""
    counts = Counter(known_of(item, sources[item.span.file], name) for item in findings)
    order = sorted(counts, key=lambda item: (item.file, item.rule, item.text))
    rows = [{"rule": item.rule, "file": item.file, "text": item.text, "count": counts[item]} for item in order]
    return {"schema_version": _VERSION, "findings": rows}


def read_baseline(data: object, file: str) -> Counter[Known]:
    """Return the entries of a baseline, each with how many findings it covers.

    Raises:
        UsageError: It is none.
    """
    rows = data.get("findings") if isinstance(data, dict) and data.get("schema_version") == _VERSION else None
    found: Counter[Known] = Counter()
    for row in rows if isinstance(rows, list) else [None]:
        values = [row.get(key) for key in ("rule", "file", "text")] if isinstance(row, dict) else [None]
        count = row.get("count", 1) if isinstance(row, dict) else 0
        if not all(isinstance(value, str) for value in values) or type(count) is not int or count < 1:
            raise UsageError(f"{file} is not a baseline of check", hints=(f"`--write-baseline {file}` writes one",))
        rule, name, text = (str(value) for value in values)
        found[Known(rule=rule, file=name, text=text)] += count
    return found


def split(
    findings: Sequence[Finding], sources: Mapping[str, Source], known: Counter[Known], name: Callable[[str], str]
) -> tuple[list[Finding], list[Finding], Counter[Known]]:
    """Return the findings that are new, those that are known, and the entries that are left without one.

    Args:
        findings: In order.
        sources: Files by name.
        known: The entries.
        name: Turns a file into its name in the baseline.
    """
    left = Counter(known)
    new: list[Finding] = []
    old: list[Finding] = []
    for finding in findings:
        entry = known_of(finding, sources[finding.span.file], name)
        if left[entry] > 0:
            left[entry] -= 1
            old.append(finding)
        else:
            new.append(finding)
    return new, old, +left
