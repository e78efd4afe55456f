"""Idle nodes and a decision, asked of a real Prometheus that scrapes a simulated fleet.

The exporters are stand-ins (``tests/fleet_exporter.py``). Prometheus comes from the system's package; without it these
tests are skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from fleet_exporter import Fleet
from fleet_prometheus import await_value, run_prometheus

from provision.cli.policy_file import policy_limits
from provision.fleet.idle import find_idle
from provision.fleet.observe import observe
from provision.fleet.policy import decide
from provision.generate.scaling.policy import read_policy
from provision.matrix.load import Matrix
from provision.probe.prometheus import Prometheus
from provision.records import replace

MATRIX = Matrix()
WINDOW_SECONDS = 60
POLICY = read_policy(
    {"minimum": 1, "maximum": 8, "metric": "utilisation", "idle_after_seconds": WINDOW_SECONDS}, policy_limits(MATRIX)
)

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    fleet = Fleet(nodes=6, faults={"gpu002": "free", "gpu003": "idle", "gpu004": "held", "gpu005": "down"})
    with run_prometheus(fleet, tmp_path_factory.mktemp("prometheus")) as server:
        await_value(server, "sum(node:gpu_visible:count)", 5 * 8)
        await_value(server, "count(min by (node) (count_over_time(gpu:activity:percent[60s])) >= 3)", 5)
        await_value(server, "count(provision_node_hold == 1)", 1)
        await_value(server, 'count(up{job="gpu"} == 0)', 1)
        yield server


def test_each_node_is_judged_by_what_prometheus_knows(server: Prometheus) -> None:
    report = find_idle(server, MATRIX, window_seconds=WINDOW_SECONDS)
    assert {node.evidence.node: node.verdict for node in report.nodes} == {
        "gpu001": "busy",
        "gpu002": "release",
        "gpu003": "ask",
        "gpu004": "keep",
        "gpu005": "unknown",
        "gpu006": "busy",
    }
    (free,) = report.of("release")
    assert free.evidence.gpus == free.evidence.planned == free.evidence.watched == 8
    assert {node.evidence.node: node.evidence.idle_gpus for node in report.nodes if node.evidence.idle_gpus} == {
        "gpu002": 8,
        "gpu003": 8,
        "gpu004": 8,
    }
    assert free.evidence.busiest_percent == pytest.approx(2)


def test_a_longer_window_than_there_are_samples_offers_nothing(server: Prometheus) -> None:
    report = find_idle(server, MATRIX, window_seconds=86_400)
    assert not report.of("release")


def test_a_decision_is_made_from_what_prometheus_knows(server: Prometheus) -> None:
    seen = observe(server, MATRIX, POLICY)
    look = seen.observation
    assert (look.nodes, look.idle, seen.idle) == (5, 1, ("gpu002",))
    # Two nodes of five are at work, at 76 to 96 %.
    assert look.utilisation_percent == pytest.approx((2 * 86 + 3 * 2) / 5, abs=5)
    assert decide(POLICY, seen.state, look).action == "hold"
    # A load under the threshold is taken for one only after it was so for as long as the policy waits.
    eager = replace(POLICY, out_above=95.0, target=90.0, in_below=60.0, in_after_seconds=0, in_cooldown_seconds=0)
    seen = observe(server, MATRIX, eager)
    said = decide(eager, seen.state, seen.observation)
    assert (said.action, said.count) == ("release", 1), said.reason
    patient = replace(eager, in_after_seconds=86_400)
    seen = observe(server, MATRIX, patient)
    assert decide(patient, seen.state, seen.observation).action == "hold"
