"""A real Prometheus over a simulated fleet (``fleet_exporter``), with the rules that `provision fleet` writes."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from fleet_exporter import Fleet, serve

from provision.errors import MissingDependencyError
from provision.generate.monitoring import rule_groups
from provision.matrix.load import Matrix
from provision.probe.prometheus import Prometheus

__all__ = ["await_value", "run_prometheus", "start_prometheus"]

_PATIENCE_SECONDS = 120


@contextmanager
def run_prometheus(fleet: Fleet, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the fleet; it has been started, and knows nothing yet."""
    with serve(fleet) as port:
        _configure(folder, fleet, port)
        with start_prometheus(folder) as server:
            yield server


@contextmanager
def start_prometheus(folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus on the configuration that lies in a folder."""
    mine = _free_port()
    words = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{mine}"]
    words += ["--storage.tsdb.path=data", "--log.level=error"]
    with (folder / "log").open("wb") as log, subprocess.Popen(words, cwd=folder, stdout=log, stderr=log) as process:
        try:
            yield Prometheus(f"http://127.0.0.1:{mine}")
        finally:
            process.terminate()


def await_value(server: Prometheus, expression: str, wanted: float) -> None:
    """Ask until the answer is the one that is waited for."""
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


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _configure(folder: Path, fleet: Fleet, port: int) -> None:
    """Write rules whose alerts wait for nothing, and the targets by file_sd."""
    groups = rule_groups(Matrix())
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
