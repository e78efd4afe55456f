"""What a run of a playbook did, host by host, from the events of the callback plugin.

Events come from another process and may be cut short or garbled: what cannot be read is left out, and a host without a
last word is "incomplete", never done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from provision.probe.clean import clean, clean_line
from provision.probe.redact import redact
from provision.records import NOTHING, record

OK, CHANGED, FAILED, UNREACHABLE = "ok", "changed", "failed", "unreachable"
INCOMPLETE, NOT_RUN = "incomplete", "skipped"
STATUSES = (OK, CHANGED, FAILED, UNREACHABLE, INCOMPLETE, NOT_RUN)
"""What can be said of a host; ``skipped``: it was chosen, and the run ended before its turn."""

_LINES_BEGIN, _LINES_END = 10, 40
_LINE_CHARACTERS = 1200
_WRAPPERS = re.compile(
    r"\A(?:Task|Action) failed: |(?:Task failed: )?Finalization of task args for '[\w.]{1,100}' failed: "
    r"|Error while resolving value for '[\w.]{1,100}': |The (?:filter|lookup|test) plugin '[\w.]{1,100}' failed: "
)
"""What ansible-core puts before the words of a module, a role or a filter; where it happened is said anyway."""
_PROOF = "gpu_verify"
_WHOLE_MESSAGE_OF = ("gpu_preflight", _PROOF)
"""Roles whose message is a list that is worth nothing when it is cut."""


@record
class Change:
    """One thing that was changed, or would be.

    Attributes:
        task: Name of the task.
        role: Role it belongs to, if any.
        what: Path, package or item, as far as the module tells.
        said: What the task says that it would do.
        diff: What the module said about before and after, one mapping a file.
    """

    task: str
    role: str | None = None
    what: str | None = None
    said: str | None = None
    diff: tuple[Mapping[str, str], ...] = ()


@record
class HostResult:
    """How one host fared.

    Attributes:
        name: Its name in the inventory.
        status: One of ``STATUSES``.
        roles: Role → the worst that happened in it: ``ok``, ``changed``, ``failed``, ``unreachable``, ``skipped``.
        changes: In the order in which they happened.
        remote_executions: How often the host was asked to run something.
        counts: Ansible's own counts of tasks; empty where it never gave them.
        task: The task that failed.
        message: The last error, whole.
        notes: What roles said for people to know, in the order in which they did.
    """

    name: str
    status: str
    roles: Mapping[str, str] = NOTHING
    changes: tuple[Change, ...] = ()
    remote_executions: int = 0
    counts: Mapping[str, int] = NOTHING
    task: str | None = None
    role: str | None = None
    message: str | None = None
    notes: tuple[str, ...] = ()


@record
class UsedLock:
    """A lock as Ansible gave it to some hosts.

    Attributes:
        name: For people.
        digest: ``sha256:…``, as the lock says it.
        facts_date: Day of the facts (ISO).
        hosts: Those that have it.
    """

    name: str
    digest: str
    facts_date: str
    hosts: tuple[str, ...]


_RANK = {"skipped": 0, "ok": 1, "ignored": 1, "changed": 2, "failed": 3, "unreachable": 4}


class _Host:
    """What is known of a host so far."""

    def __init__(self) -> None:
        self.roles: dict[str, str] = {}
        self.changes: list[Change] = []
        self.notes: list[str] = []
        self.remote = 0
        self.counts: dict[str, int] = {}
        self.error: tuple[str, str | None, str] | None = None
        self.trouble = ""
        self.is_done = False


class Run:
    """Collects the events of one run.

    Args:
        names: The hosts that were chosen, in the order in which they are reported.

    Attributes:
        ansible: Version of ansible-core; absent until it has said so.
        play: What is being done now.
        batch: Which batch of hosts of this play, from 1.
        role: Likewise.
        task: Likewise.
        locks: The locks of the hosts; none until Ansible has said so.
        is_counted: Whether Ansible came to its end and counted.
        unread: How many lines were no event.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._hosts: dict[str, _Host] = {name: _Host() for name in names}
        self._batch: dict[str, None] = {}
        self._plays = 0
        self._play: int | None = None
        self.roles: list[str] = []
        self.ansible: str | None = None
        self.play: str | None = None
        self.batch = 0
        self.role: str | None = None
        self.task: str | None = None
        self.locks: tuple[UsedLock, ...] = ()
        self.is_counted = False
        self.unread = 0

    def take(self, line: str) -> dict[str, Any] | None:
        """Take one line and return the event, or nothing where it was none."""
        try:
            event = json.loads(line)
            kind = event["event"]
            handle = self._HANDLERS[kind]
        except (ValueError, KeyError, TypeError, RecursionError):
            self.unread += 1
            return None
        try:
            handle(self, event)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.unread += 1
            return None
        return dict(event)

    def _start(self, event: Mapping[str, Any]) -> None:
        self.ansible = str(event["ansible"])
        self._plays = len(event["plays"])

    def _begin_play(self, event: Mapping[str, Any]) -> None:
        self._finish_batch()
        number = event["number"]
        self.batch = self.batch + 1 if number == self._play else 1
        self._play = number
        self.play = clean_line(str(event["name"]))
        self.role = self.task = None

    def _find_locks(self, event: Mapping[str, Any]) -> None:
        self.locks = tuple(
            UsedLock(
                name=clean_line(str(row["name"]), 300),
                digest=clean_line(str(row["digest"]), 300),
                facts_date=clean_line(str(row["facts_date"]), 300),
                hosts=tuple(clean_line(str(name)) for name in row["hosts"]),
            )
            for row in event["locks"]
        )

    def _begin_task(self, event: Mapping[str, Any]) -> None:
        self.task = clean_line(str(event["task"]))
        self.role = _optional(event.get("role"))
        if self.role is not None and self.role not in self.roles:
            self.roles.append(self.role)

    def _result(self, event: Mapping[str, Any]) -> None:
        status = event["status"]
        rank = _RANK[status]
        host = self._hosts.setdefault(str(event["host"]), _Host())
        self._batch[str(event["host"])] = None
        host.remote += int(event.get("remote", 0))
        role, task = _optional(event.get("role")), clean_line(str(event["task"]))
        if role is not None and rank >= _RANK[host.roles.get(role, "skipped")]:
            host.roles[role] = "ok" if status == "ignored" else status
        for change in event.get("changes", ()):
            diff = tuple(
                {str(key): redact(clean(str(value))) for key, value in row.items()} for row in change.get("diff", ())
            )
            what = change.get("what") or change.get("item")
            said = change.get("said")
            host.changes.append(
                Change(
                    task=task,
                    role=role,
                    what=None if what is None else redact(clean_line(str(what), 300)),
                    said=None if said is None else redact(clean(str(said))),
                    diff=diff,
                )
            )
        # The proof says of every host that it is proved, which the status says as well.
        if event.get("said") and role != _PROOF:
            host.notes.append(redact(clean(str(event["said"]))).strip())
        if status in (FAILED, UNREACHABLE):
            host.error = (task, role, redact(clean(str(event.get("message", "")))))
            host.trouble = status

    def _stats(self, event: Mapping[str, Any]) -> None:
        self._finish_batch()
        self.is_counted = True
        for name, counts in event["hosts"].items():
            host = self._hosts.setdefault(str(name), _Host())
            host.counts = {str(key): int(value) for key, value in counts.items()}

    def _nothing(self, event: Mapping[str, Any]) -> None:
        """Take an event that changes nothing."""

    def _finish_batch(self) -> None:
        """Note who has come to the end of the last play without trouble."""
        if self._play is not None and self._play == self._plays - 1:
            for name in self._batch:
                host = self._hosts[name]
                # A rescue may have mended it, which only the counts at the end tell: until then it is not done.
                host.is_done = not host.trouble
        self._batch.clear()

    _HANDLERS: ClassVar[Mapping[str, Callable[[Run, Mapping[str, Any]], None]]] = {
        "start": _start,
        "play": _begin_play,
        "locks": _find_locks,
        "task": _begin_task,
        "result": _result,
        "stats": _stats,
        "no_hosts": _nothing,
    }

    def done(self) -> tuple[str, ...]:
        """Return the hosts that have come to the end without trouble, in order."""
        return tuple(result.name for result in self.results() if result.status in (OK, CHANGED))

    def result_of(self, name: str) -> HostResult:
        """Return how one host fares, or fared."""
        host = self._hosts[name]
        is_clean = not (host.error and host.trouble)
        if host.counts:
            troubles = {UNREACHABLE: host.counts.get("unreachable", 0), FAILED: host.counts.get("failures", 0)}
            status = next((key for key, count in troubles.items() if count), CHANGED if host.changes else OK)
            is_clean = status in (OK, CHANGED)
        elif host.trouble:
            status = host.trouble
        elif host.is_done:
            status = CHANGED if host.changes else OK
        else:
            status = INCOMPLETE if host.roles or host.remote else NOT_RUN
        task, role, message = (None, None, None) if is_clean or host.error is None else host.error
        return HostResult(
            name=name,
            status=status,
            roles=dict(host.roles),
            changes=tuple(host.changes),
            remote_executions=host.remote,
            counts=dict(host.counts),
            task=task,
            role=role,
            message=message,
            notes=tuple(dict.fromkeys(host.notes)),
        )

    def results(self) -> tuple[HostResult, ...]:
        """Return how every host fared: those that were chosen, in their order, then any other."""
        # A table on the screen asks from a thread of its own.
        return tuple(map(self.result_of, tuple(self._hosts)))


def shorten(result: HostResult) -> str:
    """Return the message of a host fit for a screen: its beginning and its end; lists of problems stay whole."""
    text = _WRAPPERS.sub("", result.message or "")
    if result.role in _WHOLE_MESSAGE_OF:
        return text
    lines = [_shorten_line(line) for line in text.splitlines()]
    if len(lines) > _LINES_BEGIN + _LINES_END:
        left_out = f"… {len(lines) - _LINES_BEGIN - _LINES_END} lines left out …"
        lines = [*lines[:_LINES_BEGIN], left_out, *lines[-_LINES_END:]]
    return "\n".join(lines)


def _shorten_line(line: str) -> str:
    """Return a line without its middle where it is too long: why something failed stands at the end."""
    if len(line) <= _LINE_CHARACTERS:
        return line
    half = (_LINE_CHARACTERS - 3) // 2
    return f"{line[:half]} … {line[-half:]}"


def _optional(value: object) -> str | None:
    return None if value is None else clean_line(str(value))
