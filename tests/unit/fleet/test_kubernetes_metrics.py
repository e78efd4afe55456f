"""What a bundle for Kubernetes has a real Prometheus scrape and tell: faults of GPUs, by cluster, node and GPU.

Stand-ins are the exporters (``tests/fleet_exporter.py``), and the Prometheus Operator: its translation of a
ServiceMonitor into a job is done here, with the labels that it puts on every target. Prometheus comes from the system's
package; without it these tests are skipped.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fleet_exporter import Fleet, serve
from fleet_prometheus import await_value, start_prometheus

from provision.generate.cluster.options import ClusterOptions
from provision.generate.cluster.render import render_cluster
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.probe.prometheus import Prometheus

MATRIX = Matrix()
WORK = {"namespace": "vision", "pod": "train-0", "container": "main"}

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def bundle(cluster: str) -> dict[str, Any]:
    """Return the objects that --monitoring writes, by kind."""
    subject = Subject(
        name="torch",
        digest="sha256:" + "a" * 64,
        facts_date="2026-11-22",
        driver_minimum="525.60.13",
        driver_branch=str(MATRIX.driver_images[-1].branch),
    )
    files = render_cluster(subject, ClusterOptions(cluster=cluster), MATRIX).artifacts
    text = next(item.text for item in files if item.path == "monitoring.yaml")
    return {row["kind"]: row["spec"] for row in yaml.safe_load_all(text) if "spec" in row}


def job_of(monitor: dict[str, Any], name: str, targets: str) -> dict[str, Any]:
    """Return the scrape job that the Prometheus Operator makes of a ServiceMonitor."""
    (end,) = monitor["endpoints"]
    snake = lambda row: {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): row[key] for key in row}  # noqa: E731
    return {
        "job_name": name,
        "file_sd_configs": [{"files": [targets]}],
        "relabel_configs": [
            # These it puts before those of the ServiceMonitor.
            {"target_label": "namespace", "replacement": "gpu-operator"},
            {"source_labels": ["__meta_pod"], "target_label": "pod"},
            {"target_label": "container", "replacement": "nvidia-dcgm-exporter"},
            {"target_label": "service", "replacement": "nvidia-dcgm-exporter"},
            {"target_label": "job", "replacement": "nvidia-dcgm-exporter"},
            {"target_label": "endpoint", "replacement": end["port"]},
            *map(snake, end["relabelings"]),
        ],
    }


@pytest.fixture(scope="module")
def fleets() -> dict[str, Fleet]:
    return {name: Fleet(nodes=3, labels=WORK) for name in ("prod", "lab")}


@pytest.fixture(scope="module")
def server(fleets: dict[str, Fleet], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    groups = bundle("prod")["PrometheusRule"]["groups"]
    for group in groups:
        group["interval"] = "2s"
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    with serve(fleets["prod"]) as prod, serve(fleets["lab"]) as lab:
        jobs = []
        for name, port in (("prod", prod), ("lab", lab)):
            targets = [
                {
                    "targets": [f"127.0.0.1:{port}"],
                    "labels": {
                        "__meta_kubernetes_pod_node_name": node,
                        "__meta_pod": f"nvidia-dcgm-exporter-{node}",
                        "__metrics_path__": f"/{node}/gpu",
                    },
                }
                for node in fleets[name].names
            ]
            (folder / f"{name}.yml").write_text(yaml.safe_dump(targets), encoding="utf-8")
            jobs.append(job_of(bundle(name)["ServiceMonitor"], name, f"{name}.yml"))
        document = {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
        with start_prometheus(folder) as server:
            await_value(server, "sum(node:gpu_visible:count)", 2 * 3 * 8)
            yield server


def test_every_series_is_of_a_cluster_and_a_node_and_of_the_work_that_has_the_gpu(server):
    wanted = 'DCGM_FI_DEV_FB_USED{cluster="prod",node=~"gpu00.",job="gpu",namespace="vision",pod="train-0"}'
    await_value(server, f"count({wanted})", 3 * 8)
    await_value(server, 'count(up{job="gpu",pod=""})', 6)


def test_the_same_nodes_of_two_clusters_are_two(server):
    await_value(server, "count(node:gpu_visible:count)", 6)


def test_nothing_is_told_while_all_is_well(server):
    await_value(server, 'count(ALERTS{alertstate="firing",severity!="none"}) or vector(0)', 0)


@pytest.mark.parametrize(
    ("node", "fault", "alert"),
    [
        ("gpu001", "lost", 'alertname="GpuLost"'),
        ("gpu002", "xid", 'alertname="GpuXidFatal",gpu="3",xid="79"'),
        ("gpu003", "down", 'alertname="GpuExporterDown"'),
    ],
)
def test_a_fault_is_told_with_cluster_node_and_gpu_and_of_no_namesake(server, fleets, node, fault, alert):
    fleets["prod"].faults[node] = fault
    firing = f'ALERTS{{alertstate="firing",{alert},node="{node}"'
    await_value(server, f'count({firing},cluster="prod"}})', 1)
    await_value(server, f'count({firing},cluster="lab"}}) or vector(0)', 0)
