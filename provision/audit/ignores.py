"""Comments that say a finding is known: ``# provision: ignore=B03 mirrored nightly``.

A comment on a line of its own counts for the instruction or line below it, one behind something for that line. It needs
a reason; one without, one that names no rule and one that suppresses nothing are findings themselves, so that no stale
ignore stays behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from provision.audit.documents import Document
from provision.audit.model import Finding, Source, Span
from provision.matrix.model import AuditRule

NO_REASON, UNKNOWN_RULE, NEEDLESS = "I01", "I02", "I03"
"""Ids of the rules over the comments themselves."""

# Compiled when a file has such a comment; few do.
_COMMENT = r"#\s*provision:\s*ignore\s*(?:=\s*([A-Za-z0-9_,-]*(?:\s*,\s*[A-Za-z0-9_-]+)*))?[ \t]*([^\r\n]*)"


class Ignore:
    """One comment.

    Attributes:
        span: The comment.
        rules: Ids that it names.
        reason: Why, empty for none.
        covers: Offsets from and to which findings are suppressed.
        used: Ids that it did suppress.
    """

    def __init__(self, span: Span, rules: tuple[str, ...], reason: str, covers: tuple[int, int]) -> None:
        self.span = span
        self.rules = rules
        self.reason = reason
        self.covers = covers
        self.used: set[str] = set()

    def suppresses(self, finding: Finding) -> bool:
        """Tell whether a finding is covered, and remember that it was."""
        if not self.reason or finding.rule not in self.rules or finding.span.file != self.span.file:
            return False
        if not self.covers[0] <= finding.span.start <= self.covers[1]:
            return False
        self.used.add(finding.rule)
        return True


def find_ignores(source: Source, document: Document | None) -> list[Ignore]:
    """Return the comments of a file.

    Args:
        source: The file.
        document: It as it was read, where it is a Dockerfile: there a comment has a line of its own.
    """
    if "provision:" not in source.text:
        return []
    comments = document.comments if document is not None else None
    found = []
    for match in re.finditer(_COMMENT, source.text):
        if comments is not None and match.start() not in comments:
            continue
        line_start = source.text.rfind("\n", 0, match.start()) + 1
        is_alone = not source.text[line_start : match.start()].strip(" \t\ufeff")
        if not is_alone and source.text[match.start() - 1] not in " \t":
            continue
        rules = tuple(part.strip().upper() for part in (match[1] or "").split(",") if part.strip())
        if comments is not None and document is not None:
            covers = _instruction(document, match.start())
        elif is_alone:
            covers = _next_line(source.text, match.end())
        else:
            covers = (line_start, match.start())
        span = source.span(match.start(), match.start() + len(match[0].rstrip()))
        found.append(Ignore(span, rules, match[2].strip(), covers))
    return found


def _instruction(document: Document, offset: int) -> tuple[int, int]:
    for start, end in document.ends:
        if offset < end:
            return start, end
    return offset, offset


def _next_line(text: str, position: int) -> tuple[int, int]:
    """Return the next line that is not a comment and not empty."""
    while (start := text.find("\n", position) + 1) > 0:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if (line := text[start:end].strip()) and not line.startswith("#"):
            return start, end
        position = start
        if start >= len(text):
            break
    return len(text), len(text)


def judge_ignores(
    ignores: Iterable[Ignore], rules: Mapping[str, AuditRule], ran: Callable[[str], Collection[str]]
) -> list[Finding]:
    """Return what is wrong with the comments.

    Args:
        ignores: After all findings were held against them.
        rules: Every rule.
        ran: Ids of the rules that ran over a file; a comment for another one may well be needed.
    """
    found = []
    for ignore in ignores:
        tried = ran(ignore.span.file)
        if not ignore.rules or not ignore.reason:
            lacks = "says no reason" if ignore.rules else "names no rule"
            hint = "write `# provision: ignore=RULE why this is right here`"
            found.append(_finding(rules, NO_REASON, ignore.span, f"this ignore {lacks} and counts for nothing", hint))
            continue
        for rule in ignore.rules:
            if rule not in rules:
                near = ", ".join(sorted(name for name in rules if name[0] == rule[:1])[:12])
                hint = (
                    f"rules that begin with {rule[:1]}: {near}" if near else "`provision check --list-rules` lists them"
                )
                found.append(
                    _finding(rules, UNKNOWN_RULE, ignore.span, f"this ignore names `{rule}`, which is not a rule", hint)
                )
            elif (rule in tried or rule in (NO_REASON, UNKNOWN_RULE, NEEDLESS)) and rule not in ignore.used:
                what = f"this ignore of {rule} suppresses nothing"
                found.append(_finding(rules, NEEDLESS, ignore.span, what, "take the comment out"))
    return found


def _finding(rules: Mapping[str, AuditRule], rule: str, span: Span, message: str, hint: str) -> Finding:
    row = rules.get(rule)
    return Finding(rule=rule, severity=row.severity if row else "warn", span=span, message=message, hint=hint)
