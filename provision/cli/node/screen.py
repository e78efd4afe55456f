"""What a run did on its hosts, as text and as a document."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provision.cli.output import Output
from provision.cli.text.paragraph import columns_of, wrap
from provision.cli.text.screen import align
from provision.node.events import (
    CHANGED,
    FAILED,
    INCOMPLETE,
    NOT_RUN,
    STATUSES,
    UNREACHABLE,
    Change,
    HostResult,
    shorten,
)

_STYLES = {FAILED: "error", UNREACHABLE: "error", INCOMPLETE: "warning", NOT_RUN: "warning"}
_NAMES_MAX = 8
_DIFF_LINES_MAX = 60
_WORDS = {NOT_RUN: "not run"}


def count_results(results: Iterable[HostResult]) -> dict[str, int]:
    """Return status → how many hosts, every status named."""
    counts = Counter(result.status for result in results)
    return {status: counts[status] for status in STATUSES}


def write_results(results: Sequence[HostResult], *, has_diff: bool) -> dict[str, Any]:
    """Return the part of the document that is about hosts.

    Args:
        results: How each fared.
        has_diff: Whether the differences of files are part of it.
    """
    return {
        "counts": count_results(results),
        "hosts": [
            {
                "host": row.name,
                "status": row.status,
                "changed_tasks": row.counts.get("changed", len({(item.role, item.task) for item in row.changes})),
                "remote_executions": row.remote_executions,
                "roles": dict(row.roles),
                "tasks": dict(row.counts),
                "failed_task": row.task,
                "failed_role": row.role,
                "message": row.message,
                "notes": list(row.notes),
                "changes": [_write_change(item, has_diff=has_diff) for item in row.changes],
            }
            for row in results
        ],
    }


def _write_change(change: Change, *, has_diff: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "role": change.role,
        "task": change.task,
        "what": change.what,
        "said": change.said,
    }
    if has_diff:
        document["diff"] = [dict(row) for row in change.diff]
    return document


def show_results(results: Sequence[HostResult], output: Output, *, is_check: bool, done_before: int = 0) -> str:
    """Return the lines of a run: what changed, what is left to people, who failed and why, every host, the sum.

    Hosts on which the same happened share their lines.

    Args:
        results: How each fared.
        output: Decides on colour and on how much is said; ``-v`` shows the differences of files.
        is_check: Nothing was changed; the lines say what would be.
        done_before: How many hosts an earlier run has finished.
    """
    parts = [list(_show_changes(results, output, is_check=is_check))] if is_check or output.verbosity > 0 else []
    parts.append(list(_show_notes(results, output)))
    parts.append(list(_show_errors(results, output)))
    rows = [("host", "result", "changed", "remote", "")]
    for row in results:
        changed = row.counts.get("changed", len({(item.role, item.task) for item in row.changes}))
        failed = f"{row.role or ''}{': ' if row.role and row.task else ''}{row.task or ''}" if row.message else ""
        rows.append((row.name, _word(row.status, is_check=is_check), str(changed), str(row.remote_executions), failed))
    lines = align(rows)
    painted = [_paint(line, row.status, output) for line, row in zip(lines[1:], results, strict=True)]
    parts.append([output.paint(lines[0], "label"), *painted])
    parts.append([_sum(results, is_check=is_check, done_before=done_before)])
    return "\n\n".join("\n".join(part) for part in parts if part)


def _word(status: str, *, is_check: bool) -> str:
    return "would change" if is_check and status == CHANGED else _WORDS.get(status, status)


def _paint(line: str, status: str, output: Output) -> str:
    return output.paint(line, _STYLES[status]) if status in _STYLES else line


def _sum(results: Sequence[HostResult], *, is_check: bool, done_before: int) -> str:
    counts = {status: count for status, count in count_results(results).items() if count}
    hosts = f"{len(results)} {'host' if len(results) == 1 else 'hosts'}"
    words = ", ".join(f"{count} {_word(status, is_check=is_check)}" for status, count in counts.items())
    before = f"; {done_before} more {'was' if done_before == 1 else 'were'} done before" if done_before else ""
    return f"{hosts}: {words or 'nothing was done'}{before}"


def _show_changes(results: Sequence[HostResult], output: Output, *, is_check: bool) -> Iterator[str]:
    """Yield what changed, hosts with the same changes together."""
    groups: dict[tuple[tuple[str | None, ...], ...], list[HostResult]] = {}
    columns = columns_of(output)
    for row in results:
        if row.changes:
            groups.setdefault(tuple((item.role, item.task, item.what, item.said) for item in row.changes), []).append(
                row
            )
    for rows in groups.values():
        names = _names(row.name for row in rows)
        yield output.paint(f"{names} {'would change' if is_check else 'changed'}", "label")
        role: str | None = ""
        for item in rows[0].changes:
            if item.role != role:
                role = item.role
                yield f"  {role or 'the playbook'}"
            yield f"    {item.task}{f': {item.what}' if item.what and item.what not in item.task else ''}"
            if item.said:
                yield from wrap(item.said, columns, lead="      ")
            if output.verbosity > 0:
                for diff in item.diff:
                    yield from (f"      {line}" for line in _show_diff(diff))


def _show_diff(diff: Mapping[str, str]) -> list[str]:
    """Return one difference as Ansible gave it, long ones cut."""
    if "prepared" in diff:
        lines = diff["prepared"].rstrip("\n").splitlines()
    else:
        before, after = diff.get("before", ""), diff.get("after", "")
        lines = [
            line.rstrip("\n")
            for line in difflib.unified_diff(
                before.splitlines(keepends=True),
                after.splitlines(keepends=True),
                diff.get("before_header", "before"),
                diff.get("after_header", "after"),
            )
        ]
    if len(lines) > _DIFF_LINES_MAX:
        lines = [*lines[:_DIFF_LINES_MAX], f"… {len(lines) - _DIFF_LINES_MAX} lines more"]
    return lines


def _show_notes(results: Sequence[HostResult], output: Output) -> Iterator[str]:
    """Yield what roles said of hosts, those of which they said the same together."""
    groups: dict[tuple[str, ...], list[HostResult]] = {}
    for row in results:
        # Most name their host.
        notes = tuple(note.replace(row.name, "the node") if len(results) > 1 else note for note in row.notes)
        if notes:
            groups.setdefault(notes, []).append(row)
    columns = columns_of(output)
    for notes, rows in groups.items():
        yield output.paint(f"{_names(row.name for row in rows)}: to know", "label")
        for note in notes:
            for line in note.splitlines():
                # A command is worth most in one piece.
                yield from (
                    (f"  {line}",) if line.startswith((" ", "\t", "apt-get ")) else wrap(line, columns, lead="  ")
                )


def _show_errors(results: Sequence[HostResult], output: Output) -> Iterator[str]:
    """Yield why hosts failed, those that said the same together."""
    groups: dict[tuple[str, str | None, str | None, str], list[HostResult]] = {}
    for row in results:
        if row.message is not None:
            groups.setdefault((row.status, row.role, row.task, shorten(row)), []).append(row)
    columns = columns_of(output)
    for (status, role, task, message), rows in groups.items():
        head = f"{_names(row.name for row in rows)} {'is' if len(rows) == 1 else 'are'} unreachable"
        if status != UNREACHABLE:
            place = f"{role}, " if role else ""
            head = f"{_names(row.name for row in rows)} failed: {place}task `{task}`"
        yield output.paint(head, _STYLES.get(status, "warning"))
        for line in message.splitlines() or [""]:
            # What stands indented was printed by a program, and means more in one piece.
            yield from (f"  {line}",) if line.startswith((" ", "\t")) else wrap(line, columns, lead="  ")


def _names(names: Iterable[str]) -> str:
    known = list(names)
    if len(known) <= _NAMES_MAX:
        return ", ".join(known)
    return f"{', '.join(known[:_NAMES_MAX])} and {len(known) - _NAMES_MAX} more"
