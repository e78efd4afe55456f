"""Nodes for the benchmarks of the plays: made, reached and removed by what the Molecule scenarios use.

Lock, stand-ins and variables are those of the scenario ``default``, so that the figures are about what CI runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
MOLECULE = ROOT / "molecule"
PLAYBOOKS = ROOT / "playbooks"
SKIPPED = 75
SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"


def say(text: str) -> None:
    """Tell what goes on, apart from the figures."""
    sys.stderr.write(f"== {text}\n")


def run(*words: str | Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what fails ends the benchmark with its own words."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, **settings)
    if done.returncode == SKIPPED:
        sys.exit(f"skipped: {done.stderr.strip().splitlines()[-1]}")
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done


@dataclass(frozen=True)
class Play:
    """What one run of a playbook cost."""

    seconds: float
    controller_cpu_seconds: float
    hosts: dict[str, dict[str, Any]]

    @property
    def changed(self) -> int:
        """Tasks that changed something, over all hosts."""
        return sum(int(row["changed"]) for row in self.hosts.values())

    @property
    def remote_executions(self) -> list[int]:
        """Modules that ran on each host."""
        return sorted(int(row["modules"]) for row in self.hosts.values())


class Site:
    """Some nodes of one release, and the inventory that names them.

    Args:
        folder: Where inventory, key and records lie.
        release: What the nodes are.
        count: How many.
        start_from: What an earlier scenario, or ``keep``, left of that release; bare where it is not there.
        scenario: Whose lock and variables the nodes have.
    """

    def __init__(
        self, folder: Path, release: str, count: int, start_from: str | None = None, scenario: str = "default"
    ) -> None:
        self.folder = folder
        self.release = release
        self.start_from = start_from
        self.names = [f"bench{number}" for number in range(count)]
        self.key = folder / "id"
        self._instances: dict[str, dict[str, Any]] = {}
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))},
            "MOLECULE_EPHEMERAL_DIRECTORY": str(folder),
            "MOLECULE_FILE": str(folder / "molecule.yml"),
            "MOLECULE_INSTANCE_CONFIG": str(folder / "instances.yml"),
            "MOLECULE_SCENARIO_DIRECTORY": str(MOLECULE / scenario),
            "MOLECULE_SCENARIO_NAME": f"bench-{secrets.token_hex(3)}",
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        """Boot the nodes, and remove them however the block ends."""
        self.folder.mkdir(parents=True)
        start = {"start_from": self.start_from} if self.start_from else {}
        platforms = [{"name": name, "release": self.release, "groups": ["gpu_nodes"], **start} for name in self.names]
        write_yaml(self.folder / "molecule.yml", {"platforms": platforms})
        try:
            self._shared("nodes.py", "create")
            rows = yaml.safe_load((self.folder / "instances.yml").read_text(encoding="utf-8"))
            self._instances = {row["instance"]: row for row in rows}
            self._shared("inventory.py")
            self._write_hosts()
            yield self
        finally:
            self._shared("nodes.py", "destroy")

    def _shared(self, script: str, *words: str) -> None:
        run(sys.executable, MOLECULE / "shared" / script, *words, env=self._environment, cwd=ROOT)

    def keep(self, suffix: str) -> None:
        """Keep each node as an image that another site can start from."""
        self._shared("nodes.py", "keep", suffix)

    def _write_hosts(self) -> None:
        hosts = {
            name: {"ansible_host": row["address"], "ansible_port": row["port"]} for name, row in self._instances.items()
        }
        common = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": SSH,
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        write_yaml(self.folder / "site/nodes.yml", {"gpu_nodes": {"hosts": hosts, "vars": common}})

    def ssh(self, name: str) -> list[str]:
        """Return the words that a command on a node begins with."""
        row = self._instances[name]
        return ["ssh", "-i", str(self.key), "-p", str(row["port"]), *SSH.split(), f"root@{row['address']}"]

    def on(self, name: str, *words: str, stdin: bytes = b"") -> bytes:
        """Run a command on a node and return what it said."""
        done = subprocess.run([*self.ssh(name), shlex.join(words)], check=False, capture_output=True, input=stdin)
        if done.returncode:
            sys.exit(f"{shlex.join(words)} ended with {done.returncode} on {name}:\n{done.stderr.decode()[-3000:]}")
        return done.stdout

    def play(self, *words: str, playbook: Path = PLAYBOOKS / "gpu-node.yml", limit: Sequence[str] = ()) -> Play:
        """Run a playbook over the nodes and return what it cost; a failed host ends the benchmark."""
        records = self.folder / f"records-{secrets.token_hex(3)}"
        before, started = _children_cpu(), time.monotonic()
        narrowed = ("--limit", ",".join(limit)) if limit else ()
        run(
            _program("ansible-playbook"),
            *("-i", self.folder / "site", playbook, *narrowed, *words),
            cwd=self.folder,
            env=self._play_environment(records),
        )
        seconds, cpu = time.monotonic() - started, _children_cpu() - before
        found = sorted(records.glob("[0-9]*.json"))
        hosts = json.loads(found[-1].read_text(encoding="utf-8"))["hosts"]
        if set(hosts) != set(limit or self.names):
            sys.exit(f"the play ran on {sorted(hosts)} and not on every node: the figures would say nothing")
        return Play(seconds, cpu, hosts)

    def _play_environment(self, records: Path) -> Mapping[str, str]:
        return {
            **self._environment,
            "ANSIBLE_CALLBACK_PLUGINS": str(MOLECULE / "shared/callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "remote_executions",
            "ANSIBLE_FORKS": str(max(5, len(self.names))),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp"),
            "ANSIBLE_NOCOLOR": "1",
            "PROVISION_MOLECULE_RECORDS": str(records),
        }


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    return found or sys.exit(f"skipped: {name} is not installed")


def write_yaml(path: Path, value: object) -> None:
    """Write YAML, and the folder around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\n" + yaml.safe_dump(value, sort_keys=False, width=1000), encoding="utf-8")


def need_engine() -> None:
    """End with the reason where nothing can boot a node."""
    done = subprocess.run(
        [sys.executable, MOLECULE / "shared/nodes.py", "engine"], check=False, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"skipped: {done.stderr.strip()}")


def write_json(path: Path | None, figures: object) -> None:
    """Write the figures where asked."""
    if path:
        path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
