"""Safe edits, applied to texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provision.audit.model import Edit, Finding, Source


def apply_edits(findings: Iterable[Finding], sources: Mapping[str, Source]) -> tuple[dict[str, str], list[Finding]]:
    """Return the texts that change, by file, and the findings whose edits are in them.

    A finding's edits are applied whole or not at all; of two that touch the same place the first one counts, and the
    other is found again when the result is looked at.

    Args:
        findings: In order.
        sources: Files by name; a finding that points elsewhere is left alone.
    """
    taken: dict[str, list[Edit]] = {}
    applied = []
    for finding in findings:
        if not finding.edits or any(edit.span.file not in sources for edit in finding.edits):
            continue
        if any(_meets(edit, other) for edit in finding.edits for other in taken.get(edit.span.file, ())):
            continue
        if all(sources[edit.span.file].cut(edit.span) == edit.text for edit in finding.edits):
            continue
        for edit in finding.edits:
            taken.setdefault(edit.span.file, []).append(edit)
        applied.append(finding)
    texts = {}
    for name, edits in taken.items():
        text = sources[name].text
        ends = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
        for edit in sorted(edits, key=lambda item: item.span.start, reverse=True):
            text = text[: edit.span.start] + edit.text.replace("\n", ends) + text[edit.span.end :]
        texts[name] = text
    return texts, applied


def _meets(edit: Edit, other: Edit) -> bool:
    """Tell whether two edits touch: an insertion beside another one would depend on their order."""
    return edit.span.start <= other.span.end and other.span.start <= edit.span.end
