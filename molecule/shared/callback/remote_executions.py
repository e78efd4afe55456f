"""Record of a play: its recap, what changed, and how often each host was really asked to do something.

Counted is every module that runs over a connection to a host other than the controller (``modules``), and every
command that the connection carries for that (``commands``). A task that is skipped, or decided on the controller, costs
neither.
One JSON file a play lands in the folder PROVISION_MOLECULE_RECORDS.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: remote_executions
type: aggregate
short_description: Records the recap and the remote executions of a play as JSON
description: Counts modules and commands that ran on hosts, and writes them beside the recap.
requirements: [enable in configuration]
"""

_LOCAL = ("local", "ansible.builtin.local")


def _count(log: str) -> None:
    """Make every action write a line when it runs something remotely; workers are forks, so they inherit this."""
    run_module, run_command = ActionBase._execute_module, ActionBase._low_level_execute_command

    def note(action: Any, kind: str, what: str) -> None:
        if action._connection.transport in _LOCAL:
            return
        host = action._task.delegate_to or action._templar.available_variables.get("inventory_hostname", "?")
        row = json.dumps([kind, host, action._task.get_name(), what])
        with open(log, "a", encoding="utf-8") as file:  # noqa: PTH123  one short line is appended as a whole
            file.write(row + "\n")

    def _execute_module(self: Any, *words: Any, **settings: Any) -> Any:
        note(self, "modules", settings.get("module_name") or (words[0] if words else None) or self._task.action)
        return run_module(self, *words, **settings)

    def _low_level_execute_command(self: Any, cmd: str, *words: Any, **settings: Any) -> Any:
        note(self, "commands", "raw" if self._task.action.rpartition(".")[2] in ("raw", "script") else "")
        return run_command(self, cmd, *words, **settings)

    ActionBase._execute_module = _execute_module
    ActionBase._low_level_execute_command = _low_level_execute_command


class CallbackModule(CallbackBase):
    """Collects while a play runs and writes one file at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "remote_executions"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = os.environ.get("PROVISION_MOLECULE_RECORDS", "")
        self.disabled = not self.folder
        self.playbook = ""
        self.started = time.monotonic()
        self.changed: dict[str, list[str]] = {}
        self.failed: dict[str, list[str]] = {}
        if self.folder:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            handle, self.log = tempfile.mkstemp(prefix="remote-", suffix=".log", dir=self.folder)
            os.close(handle)
            _count(self.log)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.playbook = os.path.basename(playbook._file_name)  # noqa: PTH119

    def v2_runner_on_ok(self, result: Any) -> None:
        if result._result.get("changed"):
            self.changed.setdefault(result._host.get_name(), []).append(result._task.get_name())

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            said = str(result._result.get("msg", ""))[:4000]
            self.failed.setdefault(result._host.get_name(), []).append(f"{result._task.get_name()}: {said}")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self.failed.setdefault(result._host.get_name(), []).append(f"{result._task.get_name()}: unreachable")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        hosts: dict[str, Any] = {}
        for name in stats.processed:
            hosts[name] = dict(stats.summarize(name), modules=0, commands=0, ran=[])
            hosts[name]["changed_tasks"] = self.changed.get(name, [])
            hosts[name]["failed_tasks"] = self.failed.get(name, [])
        for line in Path(self.log).read_text(encoding="utf-8").splitlines():
            kind, name, task, what = json.loads(line)
            if name in hosts:
                hosts[name][kind] += 1
                # A raw command is all there is of its task: no module follows.
                hosts[name]["modules"] += what == "raw"
                if kind == "modules":
                    hosts[name]["ran"].append(f"{task} ({what})")
        Path(self.log).unlink()
        record = {"playbook": self.playbook, "seconds": round(time.monotonic() - self.started, 2), "hosts": hosts}
        number = len(list(Path(self.folder).glob("[0-9]*.json"))) + 1
        path = Path(self.folder, f"{number:03}-{self.playbook.removesuffix('.yml')}.json")
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
