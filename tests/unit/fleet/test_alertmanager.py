"""A real Alertmanager with the generated configuration: who is told, and what is kept quiet.

Alertmanager comes from the system's package; without it these tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import Request, urlopen

import pytest
import yaml

from provision.fleet.health import Verdict, run_pass
from provision.fleet.hosts import Hosts
from provision.generate.monitoring import alert_name, receivers, render_alertmanager
from provision.matrix.load import Matrix
from provision.probe.prometheus import Alertmanager

MATRIX = Matrix()
PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
_PATIENCE_SECONDS = 60

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="alertmanager is not installed")

Told = list[tuple[str, str, str, str]]


@pytest.fixture(scope="module")
def told() -> Iterator[tuple[int, Told]]:
    """Yield the port of a webhook and what it was told: receiver, status, alert, node."""
    heard: Told = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.extend(
                (message["receiver"], row["status"], row["labels"]["alertname"], row["labels"].get("node", ""))
                for row in message["alerts"]
            )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            del words

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1], heard
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address(told: tuple[int, Told], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("alertmanager")
    webhooks = {name: f"http://127.0.0.1:{told[0]}/{name}" for name in receivers(MATRIX)}
    document = yaml.safe_load(render_alertmanager(MATRIX, webhooks))
    # As generated, but in no hurry to save anybody from a flood.
    document["route"] |= {"group_wait": "2s", "group_interval": "1s"}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    words = [str(PROGRAM), "--config.file=alertmanager.yml", "--storage.path=data", "--cluster.listen-address="]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with (folder / "log").open("wb") as log, subprocess.Popen(words, cwd=folder, stdout=log, stderr=log) as process:
        try:
            where = f"http://127.0.0.1:{port}/api/v2/alerts"
            await_true(lambda: is_up(where), "Alertmanager did not start: " + str(folder / "log"))
            yield where
        finally:
            process.terminate()


def is_up(address: str) -> bool:
    try:
        with urlopen(address, timeout=5):
            return True
    except OSError:
        return False


def await_true(is_so, why: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > end:
            pytest.fail(why)
        time.sleep(0.2)


def send(address: str, *alerts: tuple[str, ...], is_over: bool = False) -> None:
    """Do what Prometheus does: say which alerts fire, or that they are over: alert, node, GPU and cluster."""
    now = datetime.now(UTC)
    rows = []
    for key, *place in alerts:
        alert = MATRIX.alerts[key]
        labels = {"alertname": alert_name(key), "severity": alert.severity}
        labels |= dict(zip(("node", "gpu", "cluster"), place, strict=False))
        labels |= {"action": alert.action} if alert.action else {}
        ends = now if is_over else now + timedelta(minutes=5)
        # One that began longer ago than a group waits is told at once, before it is known what silences it.
        rows.append({"labels": labels, "startsAt": now.isoformat(), "endsAt": ends.isoformat()})
    body = json.dumps(rows).encode()
    request = Request(address, data=body, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=10):
        pass


def test_an_alert_reaches_the_webhook_and_so_does_its_end(told, address):
    heard = told[1]
    send(address, ("gpu-temperature-high", "n10"))
    await_true(lambda: ("default", "firing", "GpuTemperatureHigh", "n10") in heard, f"told of {heard}")
    send(address, ("gpu-temperature-high", "n10"), is_over=True)
    await_true(lambda: ("default", "resolved", "GpuTemperatureHigh", "n10") in heard, f"told of {heard}")


def test_what_may_be_released_goes_to_who_releases(told, address):
    heard = told[1]
    send(address, ("node-idle", "n20"))
    await_true(lambda: ("release", "firing", "NodeIdle", "n20") in heard, f"told of {heard}")
    assert ("default", "firing", "NodeIdle", "n20") not in heard


def test_a_node_that_is_down_silences_what_follows_from_it_and_no_other_node(told, address):
    heard = told[1]
    send(address, ("node-down", "n1"), ("gpu-lost", "n1"), ("gpu-exporter-down", "n1"), ("gpu-lost", "n2"))
    await_true(lambda: ("default", "firing", "GpuLost", "n2") in heard, f"told of {heard}")
    await_true(lambda: ("default", "firing", "NodeDown", "n1") in heard, f"told of {heard}")
    # The group of n1 was sent as a whole: what is not in it was silenced.
    time.sleep(2)
    assert {alert for _, _, alert, node in heard if node == "n1"} == {"NodeDown"}


def test_a_gpu_that_failed_silences_what_follows_from_it_and_no_other_gpu(told, address):
    heard = told[1]
    send(
        address,
        ("gpu-xid-fatal", "n30", "3"),
        ("gpu-xid-warning", "n30", "3"),
        ("gpu-xid-warning", "n30", "5"),
        ("gpu-health-failed", "n30", "5"),
        # Its count is not about a GPU that still answers.
        ("gpu-count-below-expected", "n30"),
    )
    await_true(lambda: count_firing(address, "n30") == 4, "not all fire")
    assert count_inhibited(address, "n30") == 1
    for alert in ("GpuXidFatal", "GpuXidWarning", "GpuHealthFailed", "GpuCountBelowExpected"):
        await_true(lambda: ("default", "firing", alert, "n30") in heard, f"not told of {alert}: {heard}")  # noqa: B023


def test_a_node_that_is_lost_in_one_cluster_silences_nothing_of_its_namesake(told, address):
    send(
        address,
        ("node-down", "n40", "", "a"),
        ("gpu-lost", "n40", "", "a"),
        ("gpu-lost", "n40", "", "b"),
    )
    await_true(lambda: count_inhibited(address, "n40") == 1, "not one of the two is inhibited")
    assert count_firing(address, "n40") == 2
    await_true(lambda: ("default", "firing", "GpuLost", "n40") in told[1], f"told of {told[1]}")


def test_the_watchdog_is_told_to_its_own(told, address):
    heard = told[1]
    send(address, ("watchdog", "monitor"))
    await_true(lambda: ("watchdog", "firing", "Watchdog", "monitor") in heard, f"told of {heard}")


def test_a_silence_is_of_the_facts(address):
    """Every pair of the facts is one that Alertmanager itself calls inhibited."""
    for number, row in enumerate(MATRIX.inhibitions):
        node = f"pair{number}"
        send(address, (row.sources[0], node, "0"), *((key, node, "0") for key in row.targets))
        await_true(lambda: count_inhibited(address, node) == len(row.targets), f"{row.id}: not all are inhibited")  # noqa: B023


def count_firing(address: str, node: str) -> int:
    with urlopen(address, timeout=10) as answer:
        rows = json.loads(answer.read())
    return sum(row["labels"].get("node") == node and row["status"]["state"] == "active" for row in rows)


def count_inhibited(address: str, node: str) -> int:
    with urlopen(address, timeout=10) as answer:
        rows = json.loads(answer.read())
    return sum(row["labels"].get("node") == node and bool(row["status"]["inhibitedBy"]) for row in rows)


def test_hosts_in_maintenance_are_silent_until_they_are_back(address, tmp_path) -> None:
    root = address.removesuffix("/api/v2/alerts")
    file = tmp_path / "maintenance.json"
    server = Alertmanager(root)
    engine = Hosts({"m1": ("m1",), "m2": ("m2",)}, file, lambda *_: (0, ""), alertmanager=server, cluster="one")

    # One of a person, and one of another cluster, are not touched.
    ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for author, cluster in (("somebody", "one"), ("provision fleet health", "two")):
        matchers = [
            {"name": key, "value": value, "isRegex": False, "isEqual": True}
            for key, value in (("node", "m2"), ("cluster", cluster))
        ]
        now = datetime.now(UTC).isoformat()
        server.silence({"matchers": matchers, "startsAt": now, "endsAt": ends, "createdBy": author, "comment": "kept"})
    others = [row["id"] for row in server.silences("somebody") + server.silences("provision fleet health")]
    assert len(others) == 2

    def mine() -> list[dict[str, object]]:
        return [row for row in server.silences("provision fleet health") if row["id"] not in others]

    engine.drain("m1", "provision: GPU 1 is lost")
    engine.end_pass()
    (row,) = mine()
    assert row["comment"] == "provision: GPU 1 is lost"
    assert {item["name"]: item["value"] for item in row["matchers"]} == {"node": "m1", "cluster": "one"}
    # A second pass makes no second one.
    engine.end_pass()
    assert [again["id"] for again in mine()] == [row["id"]]
    # One that ends soon is prolonged.
    server.silence(
        {**{key: row[key] for key in ("id", "matchers", "startsAt", "createdBy", "comment")}, "endsAt": ends}
    )
    engine.end_pass()
    (longer,) = mine()
    assert datetime.fromisoformat(longer["endsAt"]) - datetime.now(UTC) > timedelta(hours=20)
    engine.resume("m1")
    engine.end_pass()
    assert mine() == []
    left = server.silences("somebody") + server.silences("provision fleet health")
    assert [row["id"] for row in left] == others


def test_an_alertmanager_that_does_not_answer_is_told_and_the_pass_stands(tmp_path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    silent = Alertmanager(f"http://127.0.0.1:{port}")
    engine = Hosts({"m1": ("m1",)}, tmp_path / "maintenance.json", lambda *_: (0, ""), alertmanager=silent)
    settings = {"state": str(tmp_path / "state"), "limit_percent": 100, "returns_per_day": 3, "jobs": "keep"}
    lost = Verdict(node="m1", id="gpu.lost", sentence="GPU 1 is lost", since=1.0)
    rows = run_pass(engine, settings, lambda: [lost], None, is_dry=False)
    assert [row["what"] for row in rows] == ["drain", "failed"]
    assert "gave no answer" in rows[1]["why"]
