"""Tell ``provision node`` what a playbook does, one JSON object a line.

ansible-core loads this file as a callback plugin. It writes to the file descriptor that PROVISION_NODE_EVENTS names,
and does nothing where that is not set. Nothing here may stop a play: whoever listens can go away at any time.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase  # type: ignore[import-untyped]

DOCUMENTATION = """
name: provision_events
type: notification
short_description: writes what happens as lines of JSON
description:
  - Writes plays, tasks and results to a file descriptor that the program which started ansible-playbook reads.
requirements: []
"""

_MESSAGE_CHARACTERS_MAX = 16_000
_DIFF_CHARACTERS_MAX = 20_000
_CONTROLLER_ONLY = frozenset(
    {"add_host", "assert", "debug", "fail", "group_by", "meta", "pause", "set_fact", "set_stats"}
    | {"import_playbook", "import_role", "import_tasks", "include_role", "include_tasks", "include_vars"}
    | {"validate_argument_spec"}
)
"""Actions that never reach the node."""
_SAYS_NOTHING = ("non-zero return code", "MODULE FAILURE", "Module result deserialization failed")
_HERE = ("localhost", "127.0.0.1", "::1")


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Events as JSON lines."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "provision_events"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._plays: list[str] = []
        self._stream = None
        self._has_told_locks = False
        word = os.environ.get("PROVISION_NODE_EVENTS", "")
        try:
            # What this process starts must not hold the descriptor: its reader waits for the end of it.
            os.set_inheritable(int(word), False)
            self._stream = os.fdopen(int(word), "w", encoding="utf-8", errors="backslashreplace")
        except (OSError, ValueError):
            self.disabled = True

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Say which plays there are."""
        from ansible.release import __version__  # type: ignore[import-untyped]

        plays = playbook.get_plays()
        self._plays = [str(play._uuid) for play in plays]
        self._write("start", ansible=__version__, plays=[_text(play.get_name()) for play in plays])

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Say that a play, or the next batch of one, begins."""
        number = self._plays.index(str(play._uuid)) if str(play._uuid) in self._plays else None
        self._write("play", number=number, name=_text(play.get_name()))
        if not self._has_told_locks:
            self._has_told_locks = True
            self._write("locks", locks=_find_locks(play))

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Say that a task begins."""
        del is_conditional
        self._write("task", **_task(task))

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Say that a handler begins."""
        self._write("task", **_task(task), is_handler=True)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say that a play has no host."""
        self._write("no_hosts")

    def v2_runner_on_ok(self, result: Any) -> None:
        """Pass on what went well."""
        self._result(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Pass on what failed."""
        self._result(result, "ignored" if ignore_errors else "failed")

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Pass on what was not needed."""
        self._result(result, "skipped")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Pass on that a host does not answer."""
        is_ignored = bool(result.task.ignore_unreachable)
        self._result(result, "ignored" if is_ignored else "unreachable")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Pass on the counts, which alone know what a rescue has mended."""
        hosts = {str(host): stats.summarize(host) for host in sorted(stats.processed)}
        self._write(
            "stats", hosts={host: {str(key): int(count) for key, count in row.items()} for host, row in hosts.items()}
        )

    def _result(self, result: Any, status: str) -> None:
        document = result.result
        items = [item for item in document.get("results") or () if isinstance(item, dict)]
        if not isinstance(document.get("results"), list) or not any("ansible_loop_var" in item for item in items):
            items = []
        event: dict[str, Any] = {"host": _text(result.host.get_name()), "status": status, **_task(result.task)}
        event["remote"] = _count_remote(result.task, document, items, status)
        if status in ("failed", "unreachable", "ignored"):
            event["message"] = _explain(document, items)
        if status == "ok" and event["action"] == "debug" and (said := _said(document.get("msg"))):
            event["said"] = said
        changes = [_change(item, event["action"]) for item in items if item.get("changed")]
        if status == "changed":
            event["changes"] = changes or [_change(document, event["action"])]
        self._write("result", **event)

    def _write(self, kind: str, **values: Any) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps({"event": kind, "at": round(time.time(), 3), **values}) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody listens any more; the play goes on.
            self._stream = None


def _find_locks(play: Any) -> list[dict[str, Any]]:
    """Return the locks that the hosts of a play have, by Ansible's own precedence, each with its hosts."""
    found: dict[tuple[str, ...], list[str]] = {}
    try:
        manager = play.get_variable_manager()
        for host in manager._inventory.get_hosts(play.hosts):
            lock = manager.get_vars(play=play, host=host, include_hostvars=False).get("provision_lock")
            # As it is written: a lock that is a template is refused by the play, and nothing is run here.
            if isinstance(lock, dict):
                row = tuple(_text(dict.get(lock, key, "")) for key in ("name", "digest", "facts_date"))
                found.setdefault(row, []).append(_text(host.get_name()))
    except Exception:
        # Which lock it was is worth less than the play.
        return []
    return [
        {"name": _cut(name, 300), "digest": _cut(digest, 300), "facts_date": _cut(date, 300), "hosts": hosts}
        for (name, digest, date), hosts in found.items()
    ]


def _task(task: Any) -> dict[str, Any]:
    name = _text(task.name or "") or _text(task.get_name())
    return {"task": name, "role": _role(task), "action": _action(task)}


def _role(task: Any) -> str | None:
    """Return the role that the playbook names: one that it includes works for it."""
    role, above = None, task
    while above is not None:
        role = getattr(above, "_role", None) or role
        above = getattr(above, "_parent", None)
    return None if role is None else _text(role.get_name())


def _action(task: Any) -> str:
    return _text(task.action).rpartition(".")[2]


def _count_remote(task: Any, document: Any, items: list[Any], status: str) -> int:
    """Return how often the node was asked to do something."""
    if status == "skipped" or _action(task) in _CONTROLLER_ONLY:
        return 0
    delegated = document.get("_ansible_delegated_vars")
    if isinstance(delegated, dict) and str(delegated.get("ansible_delegated_host")) in _HERE:
        return 0
    if not items:
        return int(document.get("attempts") or 1)
    return sum(int(item.get("attempts") or 1) for item in items if not item.get("skipped"))


def _change(document: Any, action: str) -> dict[str, Any]:
    """Return what one result, or one item of a loop, changed."""
    change: dict[str, Any] = {}
    label = document.get("_ansible_item_label", document.get("item"))
    if label is not None:
        change["item"] = _label(label)
    for key in ("dest", "path", "name"):
        if isinstance(document.get(key), str):
            change.setdefault("what", _text(document[key]))
    if action == "debug" and isinstance(document.get("msg"), str):
        change["said"] = _cut(_text(document["msg"]))
    diffs = document.get("diff") or []
    change["diff"] = [
        {str(key): _cut(_text(value), _DIFF_CHARACTERS_MAX) for key, value in diff.items() if isinstance(value, str)}
        for diff in (diffs if isinstance(diffs, list) else [diffs])
        if isinstance(diff, dict)
    ]
    return change


def _said(message: Any) -> str:
    """Return what a task tells the people who run the play; nothing where it shows a value."""
    lines = message if isinstance(message, list) else [message]
    return _cut("\n".join(map(_text, lines))) if all(isinstance(line, str) for line in lines) else ""


def _label(value: Any) -> str:
    if isinstance(value, dict):
        for key in ("path", "dest", "name", "src"):
            if isinstance(value.get(key), str):
                return _cut(_text(value[key]), 300)
    return _cut(value if isinstance(value, str) else json.dumps(value, default=str), 300)


def _explain(document: Any, items: list[Any]) -> str:
    """Return the message of a failure, of its first failed item where it was a loop."""
    for item in items:
        if item.get("failed") or item.get("unreachable"):
            why = _explain(item, [])
            label = item.get("_ansible_item_label", item.get("item"))
            return f"{_label(label)}: {why}" if label is not None else why
    if "censored" in document:
        return _text(document["censored"])
    parts = [document.get("msg")]
    if not isinstance(parts[0], str) or any(mark in parts[0] for mark in _SAYS_NOTHING):
        # These say nothing; what the program printed does.
        parts += [document.get(key) for key in ("stderr", "module_stderr", "stdout", "module_stdout")]
    texts = [part if isinstance(part, str) else "\n".join(map(str, part)) for part in parts if part]
    return _cut("\n".join(_text(text).strip() for text in texts if text.strip()) or "it failed and said nothing")


def _text(value: Any) -> str:
    return str(value)


def _cut(text: str, characters_max: int = _MESSAGE_CHARACTERS_MAX) -> str:
    """Shorten a text in the middle: its beginning and its end say most."""
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
