"""A real Prometheus scrapes a simulated fleet of 208 GPUs; what it knows is asked, shown and told of.

The exporters are stand-ins (``tests/fleet_exporter.py``). Prometheus comes from the system's package; without it these
tests are skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from fleet_exporter import Fleet
from fleet_prometheus import await_value, run_prometheus

from provision.errors import MissingDependencyError
from provision.fleet.survey import survey_fleet
from provision.generate.fleet_page import Survey, render_fleet_page
from provision.matrix.load import Matrix
from provision.probe.prometheus import Prometheus

MATRIX = Matrix()
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


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(faults={"gpu003": "hot", "gpu007": "xid", "gpu011": "down", "gpu013": "lost"})


@pytest.fixture(scope="module")
def server(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with run_prometheus(fleet, tmp_path_factory.mktemp("prometheus")) as server:
        await_value(server, "sum(node:gpu_visible:count)", 25 * 8 - 1)
        # Before the first scrape of all, every node lacks something.
        firing = 'ALERTS{alertstate="firing", severity!="none"}'
        await_value(server, f"count(group by (node) ({firing}))", len(fleet.faults))
        await_value(server, f"count(group by (node, alertname) ({firing}))", len(TOLD))
        yield server


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
