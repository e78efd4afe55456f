"""Two monitors that watch one fleet: the real servers with what is written for them tell of an alert once.

Prometheus and Alertmanager come from the system's packages; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from provision.errors import UsageError
from provision.generate.monitoring import render_alertmanager, rule_groups
from provision.generate.monitors import render_monitors
from provision.matrix.load import Matrix

MATRIX = Matrix()
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
PROMETHEUS = shutil.which("prometheus")
# No other test has these addresses of this machine.
NET = f"127.{os.getpid() // 250 % 200 + 20}.{os.getpid() % 250 + 1}"
HOSTS = (f"{NET}.1", f"{NET}.2")
STAND_INS = ("192.0.2.1", "192.0.2.2")
PATIENCE_SECONDS = 90
# An Alertmanager waits so long for each that comes before it in the mesh.
TURN_SECONDS = 15

needs_servers = pytest.mark.skipif(
    ALERTMANAGER is None or PROMETHEUS is None, reason="prometheus or alertmanager is not installed"
)
Told = list[str]


@contextmanager
def webhook() -> Iterator[tuple[int, Told]]:
    """Yield the port of a webhook and the nodes of which it was told that they are down."""
    heard: Told = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.extend(
                row["labels"]["node"]
                for row in message["alerts"]
                if (row["labels"]["alertname"], row["status"]) == ("NodeDown", "firing")
            )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            del words

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], heard
        server.shutdown()


def write(folder: Path, port: int) -> None:
    """Write what the command writes, with alerts that wait for nothing and a node that is down."""
    for artifact in render_monitors(STAND_INS, MATRIX):
        place, text = artifact.path, artifact.text
        # Both are this machine, whose own addresses the command refuses.
        for name, host in zip(STAND_INS, HOSTS, strict=True):
            place, text = place.replace(name, host), text.replace(name, host)
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    groups = rule_groups(MATRIX)
    for group in groups:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "provision-gpu.rules.yml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    routes = yaml.safe_load(render_alertmanager(MATRIX, {"default": f"http://127.0.0.1:{port}/"}))
    routes["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(routes), encoding="utf-8")
    down(folder, "n1")


def down(folder: Path, *nodes: str) -> None:
    """Have nodes be watched whose exporters do not answer."""
    (folder / "targets").mkdir(exist_ok=True)
    rows = [{"targets": [f"{NET}.9:{9100 + place}"], "labels": {"node": node}} for place, node in enumerate(nodes)]
    (folder / "targets/node.json").write_text(json.dumps(rows), encoding="utf-8")


def start(folder: Path, host: str, service: str, *, is_alone: bool) -> subprocess.Popen[bytes]:
    """Run what a Compose file says of a service, with folders of this machine in the place of its volumes."""
    home = folder / "monitors" / host
    row = yaml.safe_load((home / "compose.yaml").read_text(encoding="utf-8"))["services"][service]
    words = [word for word in row["command"] if not (is_alone and word.startswith("--cluster.peer"))]
    for mount in row["volumes"]:
        source, target = mount.split(":")[:2]
        if source.startswith("../") and (home / source).is_file():
            shutil.copy(home / source, home)
        elif not source.startswith("."):
            (home / source).mkdir()
            words = [word.replace(f"={target}", f"={home / source}") for word in words]
    words = [word.replace("/etc/prometheus/", f"{home}/").replace("/etc/alertmanager/", f"{home}/") for word in words]
    if service == "prometheus":
        text = (home / "prometheus.yml").read_text(encoding="utf-8").replace(" 30s", " 1s")
        (home / "prometheus.yml").write_text(text.replace("targets/", f"{folder}/targets/"), encoding="utf-8")
    program = str(PROMETHEUS if service == "prometheus" else ALERTMANAGER)
    with (home / f"{service}.log").open("wb") as log:
        return subprocess.Popen([program, *words], cwd=home, stdout=log, stderr=log)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def await_told(told: Told, node: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while node not in told:
        assert time.monotonic() < end, f"nobody was told of {node}: {told}"
        time.sleep(0.2)


@needs_servers
@pytest.mark.parametrize("is_alone", [False, True], ids=["mesh", "without a mesh"])
def test_of_two_monitors_one_tells_and_the_other_one_when_it_is_gone(tmp_path: Path, is_alone: bool) -> None:
    with webhook() as (port, told), ExitStack() as running:
        write(tmp_path, port)
        servers = {}
        for service in ("alertmanager", "prometheus"):
            for host in HOSTS:
                servers[host, service] = start(tmp_path, host, service, is_alone=is_alone)
                running.callback(stop, servers[host, service])
        await_told(told, "n1")
        time.sleep(TURN_SECONDS + 3)
        assert told.count("n1") == (2 if is_alone else 1), told
        if is_alone:
            return
        for service in ("alertmanager", "prometheus"):
            stop(servers[HOSTS[0], service])
        down(tmp_path, "n1", "n2")
        await_told(told, "n2")
        time.sleep(3)
        assert (told.count("n1"), told.count("n2")) == (1, 1), told


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_what_is_written_is_what_prometheus_reads(tmp_path: Path) -> None:
    write(tmp_path, 1)
    for host in HOSTS:
        home = tmp_path / "monitors" / host
        shutil.copy(tmp_path / "provision-gpu.rules.yml", home)
        done = subprocess.run(
            ["promtool", "check", "config", "--syntax-only", home / "prometheus.yml"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_two_differ_by_one_label_that_no_alert_has() -> None:
    texts = {item.path: yaml.safe_load(item.text) for item in render_monitors(("10.0.0.5", "fd00::6"), MATRIX)}
    one, two = (texts[f"monitors/{name}/prometheus.yml"] for name in ("10.0.0.5", "fd00--6"))
    assert [row["global"].pop("external_labels") for row in (one, two)] == [
        {"replica": "10.0.0.5"},
        {"replica": "fd00::6"},
    ]
    assert one == two
    assert one["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["10.0.0.5:9093", "[fd00::6]:9093"]}]}]
    command = texts["monitors/fd00--6/compose.yaml"]["services"]["alertmanager"]["command"]
    assert "--cluster.listen-address=[fd00::6]:9094" in command
    assert [word for word in command if word.startswith("--cluster.peer")] == ["--cluster.peer=10.0.0.5:9094"]


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        (("10.0.0.5",), "is there 1 time"),
        (("10.0.0.5", "10.0.0.5"), "twice"),
        (("10.0.0.5", "monitor.example"), "is not an address"),
        (("10.0.0.5", "ff02::1"), "of no machine"),
        (("10.0.0.5", "::1"), "of no machine"),
        (("10.0.0.5", "127.0.0.1"), "of no machine"),
        (("10.0.0.5", "::ffff:127.0.0.1"), "of no machine"),
        (("10.0.0.5", "::ffff:10.0.0.5"), "twice"),
        (("10.0.0.5", "fe80::1%a b;$(x)"), "of one link"),
        (("10.0.0.5", "fe80::1"), "of one link"),
        (("10.0.0.5", "2001:db8::1%eth0"), "of one link"),
    ],
)
def test_monitors_that_could_not_meet_are_refused(addresses: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        render_monitors(addresses, MATRIX)


def test_a_file_that_holds_a_secret_is_there_for_each_alertmanager() -> None:
    told = {"slack": {"default": "/etc/alertmanager/slack", "node": "https://hooks.example/a"}}
    told["pagerduty"] = {"default": "/run/secrets/pd", "node": "/etc/alertmanager/slack"}
    for artifact in render_monitors(("10.0.0.5", "10.0.0.6"), MATRIX, told):
        if not artifact.path.endswith("compose.yaml"):
            continue
        services = yaml.safe_load(artifact.text)["services"]
        mounts = [row for row in services["alertmanager"]["volumes"] if isinstance(row, dict)]
        assert [(row["source"], row["target"], row["read_only"]) for row in mounts] == [
            ("/etc/alertmanager/slack",) * 2 + (True,),
            ("/run/secrets/pd",) * 2 + (True,),
        ]
        # A file that is not there yet must not become a folder.
        assert all(row["bind"] == {"create_host_path": False} for row in mounts)
