"""Prepare what the playbook of monitoring meets: stand-ins for GPUs and for who is told, and shorter times.

Called by ``prepare.yml`` after the site is written. Stand-ins lie in ``standins/`` and are named in the records of the
run; everything else on the nodes is Debian's own and the playbook's.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

SCENARIO = Path(__file__).resolve().parent
sys.path.insert(0, str(SCENARIO.parent / "shared"))

import durations  # noqa: E402  the folders are known from here on
import inventory  # noqa: E402
import nodes  # noqa: E402
import replay  # noqa: E402

ON_NODE = "/opt/provision-stand-in"
REPLAYED = f"{ON_NODE}/gpus/gpus.prom"
"""What the stand-in for dcgm-exporter serves."""
LISTED = f"{ON_NODE}/nvidia-smi.xml"
"""What the stand-in for nvidia-smi prints."""
TOLD = f"{ON_NODE}/told/told.jsonl"
"""Where the stand-in for who is told of alerts writes."""
TOLD_PORT = 9999
GPUS = (replay.Gpu(0), replay.Gpu(1))
"""Those of every node, at work."""
RECEIVERS = ("default", "release", "watchdog")
DCGM = "datacenter-gpu-manager-4-core"
STUBS = (f"{DCGM}=1:4.5.2-1", "datacenter-gpu-manager-exporter=4.5.2-1")
FOLDER = f"mkdir -p {ON_NODE}/gpus {ON_NODE}/told && chmod 755 {ON_NODE} {ON_NODE}/gpus"
"""Stand-ins and what they serve; programs with little rights read there."""


def write_site(factor: int) -> None:
    """Write the variables of the monitor and of the nodes: the committed rules and routes in a shorter time."""
    site, roles = inventory.site(), playbooks() / "roles"
    rules = roles / "gpu_prometheus/files/provision-gpu.rules.yml"
    routes = roles / "gpu_alertmanager/files/alertmanager.yml"
    # Not in the site, where Ansible takes every file for an inventory.
    shortened = {path: nodes.ephemeral() / "shortened" / path.name for path in (rules, routes)}
    for path, target in shortened.items():
        target.parent.mkdir(exist_ok=True)
        target.write_text(durations.shorten_text(path.read_text(encoding="utf-8"), factor), encoding="utf-8")
    seconds = shorten_default("gpu_prometheus", "gpu_prometheus_interval_seconds", factor)
    inventory.dump(
        site / "group_vars/gpu_monitor/scenario.yml",
        {
            "gpu_prometheus_rules": str(shortened[rules]),
            "gpu_prometheus_interval_seconds": seconds,
            "gpu_prometheus_retention_size": "1GB",
            "gpu_alertmanager_configuration": str(shortened[routes]),
            "gpu_alertmanager_webhooks": {name: f"http://127.0.0.1:{TOLD_PORT}/{name}" for name in RECEIVERS},
        },
    )
    inventory.dump(
        site / "group_vars/gpu_nodes/scenario.yml",
        {
            # The shortest that the role takes: what nvidia-smi says stays until it is asked again.
            "gpu_exporter_interval_seconds": 5,
            # What the stand-ins are is what was planned.
            "gpu_exporter_driver": replay.DRIVER,
            "gpu_exporter_gpus": len(GPUS),
        },
    )


def playbooks() -> Path:
    """Return the folder of the playbooks that this run plays, which may lack the tasks of a role."""
    return Path(os.environ.get("PROVISION_PLAYBOOKS", SCENARIO.parents[1] / "playbooks"))


def shorten_default(role: str, variable: str, factor: int) -> int:
    """Return a role's own number of seconds divided by the factor."""
    text = (playbooks() / "roles" / role / "defaults/main.yml").read_text(encoding="utf-8")
    shortened = durations.shorten(f"{yaml.safe_load(text)[variable]}s", factor)
    return durations.milliseconds(shortened) // 1000


def put(instance: dict[str, Any], path: str, text: str) -> None:
    """Write a file on a node."""
    words = [*inventory.words_to(instance), inventory.file_script(path, text)]
    subprocess.run(words, check=True, input=text, text=True)


def say(instance: dict[str, Any], script: str) -> None:
    """Run a shell script on a node."""
    subprocess.run([*inventory.words_to(instance), "sh", "-eu"], check=True, input=script, text=True)


def offer_exporter(instance: dict[str, Any]) -> None:
    """Make it a node with DCGM, whose apt knows the GPU exporter: stand-ins of packages that no archive here has."""
    folder = nodes.ephemeral() / "exporter"
    words = [sys.executable, str(nodes.SHARED / "stubs/build.py"), "--out", str(folder)]
    words += [word for stub in STUBS for word in ("--also", stub)]
    subprocess.run([*words, "--key", str(nodes.ephemeral() / "gpg")], check=True, stdout=subprocess.DEVNULL)
    packed = subprocess.run(["tar", "-C", str(folder), "-cf", "-", "."], check=True, capture_output=True).stdout
    script = f"mkdir -p {inventory.STUBS} && tar -xf - -C {inventory.STUBS} --no-same-owner"
    subprocess.run([*inventory.words_to(instance), script], check=True, input=packed)
    line = f"deb [signed-by={inventory.STUBS}/stubs.gpg] file:{inventory.STUBS}/ ./\n"
    put(instance, "/etc/apt/sources.list.d/stubs.list", line)
    say(instance, f"apt-get -qq update && apt-get -qq -y install {DCGM} >/dev/null")
    inventory.record(list(STUBS))


def prepare(instance: dict[str, Any]) -> None:
    """Put the stand-ins on a node: DCGM on one, nvidia-smi on the others, who is told on the monitor."""
    name = instance["instance"]
    say(instance, FOLDER)
    for path in (SCENARIO / "standins").glob("*.py"):
        put(instance, f"{ON_NODE}/{path.name}", path.read_text(encoding="utf-8"))
    if name == "monitor":
        words = ["python3", f"{ON_NODE}/receiver.py", str(TOLD_PORT), TOLD]
        say(instance, f": >{TOLD}\nsystemd-run --quiet --unit=stand-in-receiver {shlex.join(words)}\n")
        return
    if name == "one":
        offer_exporter(instance)
    else:
        put(instance, "/usr/bin/nvidia-smi", (SCENARIO / "standins/nvidia-smi").read_text(encoding="utf-8"))
    put(instance, REPLAYED, replay.render(name, GPUS))
    put(instance, LISTED, replay.render_listing(name, GPUS))


def main() -> int:
    """Prepare all of it; return the exit status."""
    places = nodes.instances()
    if len({place["address"] for place in places}) < len(places):
        return nodes.skip(
            "the nodes share this machine's network, and exporters need an address each: no engine answers"
        )
    write_site(inventory.scenario_file(SCENARIO)["factor"])
    for place in places:
        prepare(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
