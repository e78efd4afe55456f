"""What the tests of monitoring use: the servers of the monitor as they answer, what was told to whom, and the GPUs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import inventory
import nodes as machines
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import replay
import surroundings

PROMETHEUS, ALERTMANAGER = 9090, 9093
TEXTFILE = "/var/lib/prometheus/node-exporter/provision.prom"
ATOMIC = 'mkdir -p "${1%/*}" && cat >"$1.new" && chmod 644 "$1.new" && touch -d "$2" "$1.new" && mv "$1.new" "$1"'


@dataclass(frozen=True, slots=True)
class Servers:
    """Prometheus and Alertmanager, through a tunnel to the monitor's loopback, where alone they listen."""

    prometheus: str
    alertmanager: str

    def ask(self, path: str, **words: str) -> Any:
        """Return what Prometheus' API answers."""
        answer = fetch(f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(words)}")
        assert answer["status"] == "success", answer
        return answer["data"]

    def series(self, expression: str) -> list[dict[str, str]]:
        """Return the labels of what an expression finds now."""
        return [row["metric"] for row in self.ask("query", query=expression)["result"]]

    def targets(self) -> list[dict[str, Any]]:
        """Return every target that is scraped."""
        return list(self.ask("targets", state="active")["activeTargets"])

    def health(self, **labels: str) -> dict[str, str]:
        """Return job → health of the targets with these labels, with what was wrong last."""
        return {
            row["labels"]["job"]: f"{row['health']} {row['lastError']}".strip()
            for row in self.targets()
            if fits(row["labels"], labels)
        }

    def fires(self, **labels: str) -> bool:
        """Tell whether an alert with these labels fires in Prometheus."""
        return any(row["state"] == "firing" and fits(row["labels"], labels) for row in self.ask("alerts")["alerts"])

    def firing(self) -> set[str]:
        """Return the names of all alerts that fire in Prometheus."""
        return {row["labels"]["alertname"] for row in self.ask("alerts")["alerts"] if row["state"] == "firing"}

    def silenced_by(self, **labels: str) -> list[str]:
        """Return the names of the alerts that keep one from being told."""
        rows = fetch(f"{self.alertmanager}/api/v2/alerts")
        names = {row["fingerprint"]: row["labels"]["alertname"] for row in rows}
        return sorted(
            names[key]
            for row in rows
            if row["status"]["state"] == "suppressed" and fits(row["labels"], labels)
            for key in row["status"]["inhibitedBy"]
        )


def fetch(address: str) -> Any:
    """Return the document at an address."""
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310  the fixture's own tunnel
        return json.load(answer)


def fits(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Tell whether labels hold all that is wanted."""
    return wanted.items() <= labels.items()


@dataclass(frozen=True, slots=True)
class Message:
    """One alert of one message: who was told, whether it fires or is over, and its labels."""

    receiver: str
    status: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Receiver:
    """The stand-in that is told of alerts on the monitor."""

    node: Any

    def messages(self) -> list[Message]:
        """Return all that was told so far, in its order."""
        rows = [json.loads(line) for line in self.node.read(surroundings.TOLD).splitlines()]
        return [
            Message(row["path"].lstrip("/"), alert["status"], alert["labels"])
            for row in rows
            for alert in row["alerts"]
        ]

    def heard(self, status: str, since: int = 0, **labels: str) -> set[str]:
        """Return the receivers that were told of an alert.

        Args:
            status: ``firing`` or ``resolved``.
            since: How many messages do not count, those of an earlier moment.
            labels: What the alert's labels hold.
        """
        told = self.messages()[since:]
        return {row.receiver for row in told if row.status == status and fits(row.labels, labels)}


@pytest.fixture(scope="session")
def scenario_said(scenario_folder: Path) -> dict[str, Any]:
    """What the scenario says of itself."""
    return inventory.scenario_file(scenario_folder)


@pytest.fixture(scope="session")
def monitor(node_named: Callable[[str], Any]) -> Any:
    """The node with the servers."""
    return node_named("monitor")


@pytest.fixture(scope="session")
def servers(monitor: Any) -> Iterator[Servers]:
    """The servers of the monitor."""
    ports = {port: machines.free_port() for port in (PROMETHEUS, ALERTMANAGER)}
    tunnel = [word for far, near in ports.items() for word in ("-L", f"127.0.0.1:{near}:127.0.0.1:{far}")]
    words = [*monitor.ssh[:-1], *tunnel, "-N", "-o", "ExitOnForwardFailure=yes", monitor.ssh[-1]]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as line:
        try:
            for near in ports.values():
                wait_for_port(near)
            yield Servers(*(f"http://127.0.0.1:{near}" for near in ports.values()))
        finally:
            line.terminate()


def wait_for_port(port: int, seconds: float = 20) -> None:
    """Return once the tunnel's near end is there."""
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError:
            assert time.monotonic() < end, "no tunnel to the monitor"
            time.sleep(0.1)
        else:
            return


@pytest.fixture(scope="session")
def told(monitor: Any) -> Receiver:
    """What was told of alerts."""
    return Receiver(monitor)


@pytest.fixture(scope="session")
def show_gpus() -> Callable[[Any, Iterable[replay.Gpu]], None]:
    """Make the GPUs of a node look as told, whichever way it is asked for them."""

    def show(node: Any, gpus: Iterable[replay.Gpu]) -> None:
        gpus = list(gpus)
        put(node, surroundings.REPLAYED, replay.render(node.name, gpus))
        put(node, surroundings.LISTED, replay.render_listing(node.name, gpus))

    return show


@pytest.fixture(scope="session")
def say_of_node() -> Callable[..., None]:
    """Leave on a node what its verify would write, that long ago: ``say(node, gpus=2, age="2 hours ago")``."""

    def say(node: Any, age: str = "now", **seen: Any) -> None:
        put(node, TEXTFILE, replay.render_verify(node.name, **seen), age)

    return say


def put(node: Any, path: str, text: str, age: str = "now") -> None:
    """Put a file in place whole, for it is read every second."""
    done = node.run(ATOMIC, path, age, input=text)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def healthy(servers: Servers, told: Receiver, wait: Callable[..., bool]) -> None:
    """Every node answers and somebody is told of alerts; where that fails, nothing that follows waits for it again."""
    jobs = dict.fromkeys(("node", "gpu", "icmp"), "up")
    nodes = ("one", "two")
    assert wait(lambda: all(servers.health(node=node) == jobs for node in nodes)), servers.targets()
    assert wait(lambda: told.heard("firing", alertname="Watchdog")), told.messages()
