"""Measure what the rules of a large fleet cost a real Prometheus, rule by rule.

    python tests/benchmarks/rule_evaluation.py [--gpus N] [--rounds N] [--rules FILE ...] [--top N] [--json FILE]

The fleet is a stand-in: pages with the series of that many GPUs, eight to a node, every field that the rules ask for.
What ranges reach back over is loaded first, an hour of it. Then the pages are scraped, recording rules run, and each
expression is asked by itself at that very time while nothing else goes on. Seconds are CPU of the server, so that
other work of the machine counts little. Each ``--rules`` has a Prometheus of its own. No time is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from provision.generate.monitoring import render_rules
from provision.matrix.load import Matrix

GPUS_A_NODE = 8
PAGES = 10
SCRAPE_SECONDS, RULE_SECONDS, PAST_SECONDS = 60, 30, 3600
SETTLE_SECONDS = 20
# What is looked back on: name, value, seconds between two samples.
PAST = (
    ("gpu:activity:percent", 93, RULE_SECONDS),
    ("gpu:activity_30m:percent", 93, 10 * RULE_SECONDS),
    ("gpu:sm_clock_at_work:megahertz", 1830, RULE_SECONDS),
)
WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "NVSWITCH")
EVENTS = ("gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal")
EVENTS += ("hw_power_brake", "display_clocks")
CHECKS = 49
FIELDS = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
    "DCGM_FI_DEV_FB_USED": 61000,
    "DCGM_FI_DEV_GPU_TEMP": 66,
    "DCGM_FI_DEV_GPU_UTIL": 97,
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 0,
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 0,
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16,
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
    "DCGM_FI_DEV_POWER_USAGE": 640,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    "DCGM_FI_DEV_ROW_REMAP_PENDING": 0,
    "DCGM_FI_DEV_SM_CLOCK": 1830,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.5,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.93,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 3e9,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 2e9,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.4,
}


def main() -> None:
    """Read the command line, measure each file, print."""
    parser = argparse.ArgumentParser(description="Measure the evaluation of the rules of a large fleet.")
    parser.add_argument("--gpus", type=int, default=10_000, help="GPUs of the fleet")
    parser.add_argument("--rounds", type=int, default=3, help="evaluations that are counted")
    parser.add_argument("--rules", type=Path, nargs="+", help="rule files to compare (default: those of the facts)")
    parser.add_argument("--top", type=int, default=8, help="slowest rules to name")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            sys.exit(f"skipped: {program} is not installed (Debian, Ubuntu: prometheus)")
    nodes = [f"gpu{number:05d}" for number in range(max(1, arguments.gpus // GPUS_A_NODE))]
    figures: dict[str, Any] = {"gpus": len(nodes) * GPUS_A_NODE, "rounds": arguments.rounds, "files": {}}
    with tempfile.TemporaryDirectory(prefix="re-") as scratch:
        folder = Path(scratch)
        (folder / "facts.yml").write_text(render_rules(Matrix()), encoding="utf-8")
        past = load_past(folder, nodes)
        for file in arguments.rules or [folder / "facts.yml"]:
            found = measure(folder, past, file.resolve(), nodes, arguments.rounds)
            figures["files"][str(file)] = found
            print(
                f"{file.name}: {found['seconds']:.2f} s for all {len(found['rules'])} rules, {found['series']} series"
            )
            for name, seconds in sorted(found["rules"].items(), key=lambda row: -row[1])[: arguments.top]:
                print(f"  {seconds:7.3f} s  {name}")
    totals = [row["seconds"] for row in figures["files"].values()]
    if len(totals) > 1:
        print(f"last / first: {totals[-1] / totals[0]:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def labels_of(node: str, index: int) -> str:
    """Return what dcgm-exporter labels the series of a GPU with."""
    return (
        f'node="{node}",gpu="{index}",UUID="GPU-{node}-{index}",pci_bus_id="0000:{index}b:00.0",device="nvidia{index}",'
        f'modelName="NVIDIA H100 80GB HBM3",Hostname="{node}",DCGM_FI_DRIVER_VERSION="580.95.05",'
        'namespace="team",pod="train-0",container="main"'
    )


def page_of(nodes: list[str]) -> bytes:
    """Return what the exporters of some nodes say."""
    rows: list[str] = []
    for node in nodes:
        rows += [f'up{{job="{job}",node="{node}"}} 1' for job in ("gpu", "node")]
        for index in range(GPUS_A_NODE):
            labels = labels_of(node, index)
            rows += [f"{name}{{{labels}}} {value}" for name, value in FIELDS.items()]
            rows += [
                f'DCGM_EXP_GPU_HEALTH_STATUS{{{labels},health_watch="{watch}",health_error_code="DCGM_FR_OK"}} 0'
                for watch in WATCHES
            ]
            rows += [
                f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{labels},clock_event="{event}",window_size_in_ms="60000"}} 0'
                for event in EVENTS
            ]
            rows.append(f'DCGM_EXP_XID_ERRORS_COUNT{{{labels},xid="0",window_size_in_ms="300000"}} 0')
        rows += [
            f'provision_gpu_expected{{node="{node}",target="local"}} {GPUS_A_NODE}',
            f'provision_gpu_expected_driver_info{{node="{node}",target="local",version="580.95.05"}} 1',
            f'node_systemd_unit_state{{node="{node}",name="nvidia-fabricmanager.service",state="active"}} 1',
            f'probe_icmp_duration_seconds{{node="{node}",phase="rtt"}} 0.0003',
        ]
        rows += [
            f'provision_verify_status{{node="{node}",check="check.{number}",severity="high",status="pass"}} 1'
            for number in range(CHECKS)
        ]
        for port in range(GPUS_A_NODE):
            rows.append(f'node_infiniband_state_id{{node="{node}",device="mlx5_{port}",port="1"}} 4')
            rows.append(f'node_infiniband_link_downed_total{{node="{node}",device="mlx5_{port}",port="1"}} 0')
    return ("\n".join(rows) + "\n").encode()


def load_past(folder: Path, nodes: list[str]) -> Path:
    """Write an hour of what rules record and look back on; return the folder of its blocks."""
    now = int(time.time())
    text, past = folder / "past.om", folder / "past"
    with text.open("w", encoding="utf-8") as file:
        for name, value, step in PAST:
            file.write(f"# TYPE {name} gauge\n")
            for node in nodes:
                for index in range(GPUS_A_NODE):
                    labels = f'gpu="{index}",UUID="GPU-{node}-{index}",modelName="NVIDIA H100 80GB HBM3",node="{node}"'
                    for when in range(now - PAST_SECONDS, now, step):
                        file.write(f"{name}{{{labels}}} {value} {when}\n")
        file.write("# TYPE node:gpu_visible:count gauge\n")
        for node in nodes:
            for when in range(now - PAST_SECONDS, now, RULE_SECONDS):
                file.write(f'node:gpu_visible:count{{node="{node}"}} {GPUS_A_NODE} {when}\n')
        file.write("# EOF\n")
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(past)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    return past


def measure(folder: Path, past: Path, rules: Path, nodes: list[str], rounds: int) -> dict[str, Any]:
    """Fill a Prometheus, then ask it for each expression; return the medians of its CPU seconds."""
    home = Path(tempfile.mkdtemp(dir=folder))
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    recorded = [{**group, "interval": f"{RULE_SECONDS}s"} for group in groups if "record" in group["rules"][0]]
    (home / "rules.yml").write_text(yaml.safe_dump({"groups": recorded}), encoding="utf-8")
    shutil.copytree(past, home / "data")
    size = -(-len(nodes) // PAGES)
    pages = [page_of(nodes[start : start + size]) for start in range(0, len(nodes), size)]
    with serve(pages) as target:
        document = {
            "global": {
                "scrape_interval": f"{SCRAPE_SECONDS}s",
                "scrape_timeout": "30s",
                "evaluation_interval": f"{RULE_SECONDS}s",
            },
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": f"page{number}",
                    "honor_labels": True,
                    "metrics_path": f"/{number}",
                    "static_configs": [{"targets": [target]}],
                }
                for number in range(len(pages))
            ],
        }
        (home / "prometheus.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        words = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
        words += ["--storage.tsdb.path=data", "--log.level=error"]
        with (home / "log").open("wb") as log, subprocess.Popen(words, cwd=home, stdout=log, stderr=log) as process:
            try:
                address = f"http://127.0.0.1:{port}/api/v1"
                when = fill(address, len(pages))
                (home / "prometheus.yml").write_text("scrape_configs: []\n", encoding="utf-8")
                process.send_signal(signal.SIGHUP)
                time.sleep(SETTLE_SECONDS)
                return price(address, process.pid, groups, when, rounds)
            finally:
                process.terminate()


def fill(address: str, pages: int) -> float:
    """Wait for two scrapes of everything and what is recorded of them; return the time of the last of it."""
    scraped = f"{address}/query?query=sum(count_over_time(scrape_duration_seconds[10m]))"
    while (ask(scraped, lambda data: float(data["result"][0]["value"][1])) or 0) < 2 * pages:
        time.sleep(2)
    scraped_at, last = time.time(), 0.0
    while last < scraped_at:
        time.sleep(2)
        groups = ask(f"{address}/rules", lambda data: data["groups"]) or []
        for rule in (rule for group in groups for rule in group["rules"]):
            if rule["health"] == "err":
                sys.exit(f"{rule['name']}: {rule['lastError']}")
        starts = [datetime.fromisoformat(group["lastEvaluation"][:19] + "+00:00").timestamp() for group in groups]
        # A group whose seconds are known has ended.
        last = min((start for start, group in zip(starts, groups, strict=True) if group["evaluationTime"]), default=0.0)
    return time.time()


def price(address: str, process: int, groups: list[dict[str, Any]], when: float, rounds: int) -> dict[str, Any]:
    """Ask for each expression several times; return the medians of the CPU seconds of the server."""
    found: dict[str, float] = {}
    for group in groups:
        for place, rule in enumerate(group["rules"]):
            words = urlencode({"query": rule["expr"], "time": f"{when:.3f}"})
            spent = []
            for _ in range(rounds):
                before = cpu_seconds(process)
                if ask(f"{address}/query?{words}", lambda data: data["resultType"]) is None:
                    sys.exit(f"no answer: {rule['expr']}")
                spent.append(cpu_seconds(process) - before)
            name = rule.get("alert") or rule["record"]
            found[f"{group['name']} {place} {name}"] = statistics.median(spent)
    series = ask(f"{address}/status/tsdb", lambda data: data["headStats"]["numSeries"])
    return {"seconds": sum(found.values()), "series": series, "rules": found}


def cpu_seconds(process: int) -> float:
    """Return what a process has used of the processors."""
    words = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def ask(address: str, pick: Any) -> Any:
    """Return what is picked from an answer, ``None`` where there is none yet."""
    try:
        with urlopen(address, timeout=60) as answer:
            return pick(json.loads(answer.read())["data"])
    except (URLError, LookupError, OSError):
        return None


class serve:  # noqa: N801 - a context manager
    """Serve pages by their number."""

    def __init__(self, pages: list[bytes]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages[int(self.path.strip("/"))]
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                del words

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()


if __name__ == "__main__":
    main()
