"""Hosts that only ssh reaches as an engine of the health loop: a file says which are in maintenance, and why.

Nothing schedules such hosts, so what is taken out stands in the file, for people, playbooks and launchers to read, and
its alerts are silenced. An entry that a person wrote is theirs: it counts as out, and is never taken away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from provision.errors import MissingDependencyError
from provision.files import write_whole
from provision.fleet.health import Verdict, load_loop, lock_file, run_verify
from provision.probe.prometheus import Alertmanager

Run = Callable[[str, str], tuple[int, str]]
"""Runs a line of ``sh`` on a host; gives status and output."""

_AUTHOR = "provision fleet health"
_SILENCED = timedelta(hours=24)
_BYTES_MAX = 16 * 1024 * 1024
_BUSY = "nvidia-smi --query-compute-apps=process_name --format=csv,noheader"
_SERVER = "nvidia-cuda-mps-server"
"""Runs on a GPU without any work."""
_UNKNOWN = "["
"""Begins what nvidia-smi prints for what it cannot tell."""


class Hosts:
    """A list of hosts; no more than a share of it may be out at once.

    Args:
        targets: Name of a host, as alerts and reports have it → the flags by which `provision verify` reaches it.
        file: Where maintenance is written; made when the first host is taken out.
        run: Reaches a host.
        alertmanager: Where alerts of hosts in maintenance are silenced.
        cluster: Label ``cluster`` of the alerts.
    """

    GROUP = "list of hosts"

    def __init__(
        self,
        targets: Mapping[str, Sequence[str]],
        file: Path,
        run: Run,
        *,
        alertmanager: Alertmanager | None = None,
        cluster: str | None = None,
    ) -> None:
        self._targets = targets
        self._file = file
        self._run = run
        self._alertmanager = alertmanager
        self._cluster = cluster
        self._loop = load_loop()
        self._lock: int | None = None

    def nodes(self) -> list[Any]:
        """Return the hosts of the list."""
        held = self._read()
        return [self._row(name, held) for name in self._targets]

    def node(self, name: str) -> Any:
        """Return one host; whether a program uses its GPUs is asked where this program took it out."""
        if name not in self._targets:
            raise self._error(f"{name} is not in the list of hosts")
        row = self._row(name, self._read())
        row.is_busy = row.is_out and row.reason.startswith(self._loop.PREFIX) and bool(self.jobs(name))
        return row

    def drain(self, name: str, reason: str) -> None:
        """Write a host into the file."""
        held = self._read()
        if name in held:
            raise self._error(f"{name} was taken out by somebody else meanwhile")
        self._write({**held, name: {"reason": reason, "since": self._loop.now()}})

    def resume(self, name: str) -> None:
        """Take a host out of the file."""
        with self._locked():
            self._write({key: row for key, row in self._read().items() if key != name})

    def jobs(self, name: str) -> list[str]:
        """Return the programs that use GPUs of a host; none where it does not answer, which its proof will tell."""
        try:
            status, out = self._run(name, _BUSY)
        except MissingDependencyError:
            return []
        lines = [] if status else [line.strip() for line in out.splitlines()]
        return [line for line in lines if line and not line.endswith(_SERVER) and not line.startswith(_UNKNOWN)]

    def requeue(self, job: str) -> None:
        """Refuse: nothing would start it elsewhere."""
        raise self._error(f"{job} goes on: nothing would start it on another host")

    def take_lock(self, name: str) -> bool:
        """Return whether this call alone may write the file now."""
        del name
        self._lock = self._try_lock()
        return self._lock is not None

    def give_lock(self) -> None:
        """Let others write the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def find_conditions(self) -> list[Verdict]:
        """Return nothing: a host is called bad by reports and alerts."""
        return []

    def run_proof(self, name: str) -> tuple[int | None, str, str]:
        """Verify a host over ssh; return status, output and errors."""
        try:
            return run_verify(*self._targets[name])
        except self._loop.EngineError as error:
            return None, "", str(error)

    def end_pass(self) -> None:
        """Silence the alerts of the hosts in maintenance, and end the silences of those that came back."""
        if self._alertmanager is None:
            return
        try:
            self._silence(self._alertmanager)
        except MissingDependencyError as error:
            raise self._error("; ".join((error.message, *error.because))) from error

    def _silence(self, server: Alertmanager) -> None:
        held = {name: row for name, row in self._read().items() if name in self._targets}
        now = datetime.now(UTC)
        kept: set[str] = set()
        for row in server.silences(_AUTHOR):
            labels = {item["name"]: item["value"] for item in row["matchers"]}
            name = labels.get("node", "")
            if name not in self._targets or labels.get("cluster") != self._cluster:
                continue
            if name not in held or name in kept:
                server.end_silence(row["id"])
            elif datetime.fromisoformat(row["endsAt"]) - now < _SILENCED / 2:
                # The server ends the one with this id and begins another.
                server.silence({"id": row["id"], **self._document(name, held[name], now)})
                kept.add(name)
            else:
                kept.add(name)
        for name in held.keys() - kept:
            server.silence(self._document(name, held[name], now))

    def _document(self, name: str, row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        labels = {"node": name} | ({"cluster": self._cluster} if self._cluster is not None else {})
        return {
            "matchers": [
                {"name": key, "value": value, "isRegex": False, "isEqual": True} for key, value in labels.items()
            ],
            "startsAt": now.isoformat(),
            "endsAt": (now + _SILENCED).isoformat(),
            "createdBy": _AUTHOR,
            "comment": str(row.get("reason") or "in maintenance"),
        }

    def _row(self, name: str, held: Mapping[str, Mapping[str, Any]]) -> Any:
        reason = str(held[name].get("reason") or "in maintenance") if name in held else ""
        return self._loop.Node(name, "hosts", name in held, False, reason)

    def _read(self) -> dict[str, dict[str, Any]]:
        """Return name → entry of the hosts in maintenance."""
        if not self._file.exists():
            return {}
        document = self._loop.read_json(self._file, _BYTES_MAX)
        hosts = document.get("hosts") if isinstance(document, dict) else None
        if not isinstance(hosts, dict) or not all(isinstance(row, dict) for row in hosts.values()):
            raise self._error(f'{self._file} is not a file of maintenance: {{"hosts": {{"n1": {{"reason": "…"}}}}}}')
        return hosts

    def _write(self, hosts: Mapping[str, Any]) -> None:
        text = json.dumps({"hosts": hosts}, indent=2, sort_keys=True) + "\n"
        try:
            write_whole(self._file, text.encode())
        except OSError as error:
            raise self._error(f"{self._file}: {error.strerror or error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        number = self._try_lock()
        if number is None:
            raise self._error(f"{self._file} is being written; asked again next time")
        try:
            yield
        finally:
            os.close(number)

    def _try_lock(self) -> int | None:
        path = self._file.with_name(f"{self._file.name}.lock")
        try:
            return lock_file(path, 0o644)
        except OSError as error:
            raise self._error(f"{path}: {error.strerror or error}") from error

    def _error(self, text: str) -> Exception:
        error: Exception = self._loop.EngineError(text)
        return error
