"""A real Prometheus scrapes a simulated fleet of 208 GPUs; what it knows is asked, shown and told of.

The exporters are stand-ins (``tests/fleet_exporter.py``). Prometheus comes from the system's package; without it these
tests are skipped.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fleet_exporter import Fleet, serve

from provision.errors import MissingDependencyError
from provision.fleet.prometheus import Prometheus
from provision.fleet.survey import survey_fleet
from provision.generate.fleet_page import Survey, render_fleet_page
from provision.generate.monitoring import rule_groups
from provision.matrix.load import Matrix

MATRIX = Matrix()
_PATIENCE_SECONDS = 120
TOLD = [
    ("gpu003", "GpuTemperatureHigh"),
    ("gpu007", "GpuXidFatal"),
    ("gpu007", "GpuXidKernelLog"),
    ("gpu011", "GpuExporterDown"),
    ("gpu011", "NodeDown"),
    ("gpu013", "GpuCountBelowExpected"),
    ("gpu013", "VerifyFailed"),
]

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def configure(folder: Path, fleet: Fleet, port: int) -> None:
    """Write rules whose alerts wait for nothing, and the targets by file_sd."""
    groups = rule_groups(MATRIX)
    for group in groups:
        group["interval"] = "2s"
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    jobs = []
    for job in ("gpu", "node"):
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"node": node, "__metrics_path__": f"/{node}/{job}"}}
            for node in fleet.names
        ]
        (folder / f"{job}.yml").write_text(yaml.safe_dump(targets), encoding="utf-8")
        jobs.append({"job_name": job, "file_sd_configs": [{"files": [f"{job}.yml"]}]})
    document = {
        # Slow enough for a busy machine to answer 52 scrapes each time.
        "global": {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "2s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document), encoding="utf-8")


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(faults={"gpu003": "hot", "gpu007": "xid", "gpu011": "down", "gpu013": "lost"})


@pytest.fixture(scope="module")
def server(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with serve(fleet) as port:
        configure(folder, fleet, port)
        mine = free_port()
        words = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{mine}"]
        words += ["--storage.tsdb.path=data", "--log.level=error"]
        with (folder / "log").open("wb") as log, subprocess.Popen(words, cwd=folder, stdout=log, stderr=log) as process:
            try:
                server = Prometheus(f"http://127.0.0.1:{mine}")
                await_value(server, "sum(node:gpu_visible:count)", 25 * 8 - 1)
                # Before the first scrape of all, every node lacks something.
                firing = 'ALERTS{alertstate="firing", severity!="none"}'
                await_value(server, f"count(group by (node) ({firing}))", len(fleet.faults))
                await_value(server, f"count(group by (node, alertname) ({firing}))", len(TOLD))
                yield server
            finally:
                process.terminate()


def await_value(server: Prometheus, expression: str, wanted: float) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    seen: object = None
    while time.monotonic() < end:
        try:
            lines = server.ask(expression)
            seen = lines[0].last if lines else None
        except MissingDependencyError as error:
            seen = error
        if seen == wanted:
            return
        time.sleep(0.5)
    pytest.fail(f"{expression} is {seen}, not {wanted}")


@pytest.fixture(scope="module")
def survey(server: Prometheus) -> Survey:
    return survey_fleet(server, MATRIX, hours=1)


def test_every_panel_was_asked_for(survey):
    assert survey.shown[0].panel.id == "fleet.gpus-visible"
    assert len(survey.shown) == len(MATRIX.panels)


def test_every_gpu_is_there_and_each_node_once(survey):
    rows = {row.panel.id: row for row in survey.shown}
    assert rows["fleet.gpus-visible"].lines[0].last == 199
    assert rows["fleet.gpus-planned"].lines[0].last == 200
    assert rows["fleet.nodes-down"].lines[0].last == 1
    assert len(rows["node.temperature"].lines) == 199


@pytest.mark.parametrize(("node", "alert"), TOLD)
def test_each_fault_is_told_of(survey, node, alert):
    alerts = next(row for row in survey.shown if row.panel.id == "fleet.alerts")
    assert (node, alert) in {(line.labels["node"], line.labels["alertname"]) for line in alerts.lines}


def test_nothing_else_is_told_of(survey):
    alerts = next(row for row in survey.shown if row.panel.id == "fleet.alerts")
    assert len(alerts.lines) == len(TOLD)


def test_the_page_shows_the_whole_fleet(survey):
    page = render_fleet_page(survey)
    assert "GpuXidFatal" in page
    assert page.count("<svg") >= 10
    # Nobody is idle for half an hour in a fleet that is a minute old.
    empty = [row.panel.id for row in survey.shown if row.panel.dashboard == "fleet" and not row.lines]
    assert empty == ["fleet.idle-held"]


def test_an_alert_ends_with_its_fault(server, fleet):
    question = 'count(ALERTS{alertname="GpuTemperatureHigh",alertstate="firing"})'
    await_value(server, question, 1)
    fault = fleet.faults.pop("gpu003")
    try:
        await_value(server, f"({question}) or vector(0)", 0)
    finally:
        fleet.faults["gpu003"] = fault
        await_value(server, question, 1)


def test_what_is_no_promql_is_refused_in_prometheus_words(server):
    with pytest.raises(MissingDependencyError) as caught:
        server.ask("sum(")
    assert "status 400" in caught.value.because[0]
