"""Measure what a run over a converged node costs: seconds, CPU of the controller, remote executions.

    python tests/benchmarks/node_second_run.py [--release bookworm] [--runs N] [--skip-tags TAGS] [--json FILE]

It begins with what the Molecule scenario ``default`` left behind where that is there, else it converges a bare node
first. A run that changes anything ends it with an error, since its figures would be about something else. The floors
are measured in the same run, alternately: a play of one `ping`, which is what Ansible costs at least, and one command
over ssh.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import node_containers as nodes

PING = """\
---
- name: Ask once
  hosts: gpu_nodes
  gather_facts: false
  tasks:
    - name: Answer
      ansible.builtin.ping:
"""
WANTED_REMOTE = 12


def ssh_seconds(site: nodes.Site) -> float:
    """Return the seconds of one command over a new ssh connection."""
    started = time.monotonic()
    site.on(site.names[0], "true")
    return time.monotonic() - started


def main() -> None:
    """Read the command line, measure, print, clean up."""
    parser = argparse.ArgumentParser(description="Measure a run over a converged node.")
    parser.add_argument("--release", default="bookworm", help="release of the node")
    parser.add_argument("--runs", type=int, default=5, help="converged runs")
    parser.add_argument("--skip-tags", default="none", help="what the play leaves out")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    nodes.need_engine()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    skip = ("--skip-tags", arguments.skip_tags)
    with (
        tempfile.TemporaryDirectory(prefix="pvb-") as scratch,
        nodes.Site(Path(scratch) / "nodes", arguments.release, 1, "converged").running() as site,
    ):
        ping = Path(scratch) / "ping.yml"
        ping.write_text(PING, encoding="utf-8")
        nodes.say("converging")
        first = site.play(*skip)
        plays, pings, logins = [], [], []
        for number in range(arguments.runs):
            nodes.say(f"run {number + 1} of {arguments.runs}")
            plays.append(site.play(*skip))
            if plays[-1].changed:
                sys.exit(f"a run over a converged node changed {plays[-1].changed} things")
            pings.append(site.play(playbook=ping))
            logins.append(ssh_seconds(site))
    figures = {
        "first seconds": first.seconds,
        "first changed": first.changed,
        "seconds": median(play.seconds for play in plays),
        "controller cpu seconds": median(play.controller_cpu_seconds for play in plays),
        "remote executions": max(play.remote_executions[0] for play in plays),
        "what ran": next(iter(plays[-1].hosts.values()))["ran"],
        "one ping seconds": median(play.seconds for play in pings),
        "one ssh command seconds": median(logins),
    }
    nodes.write_json(arguments.json, figures)
    print(
        f"{figures['seconds']:6.2f} s a converged run, {figures['controller cpu seconds']:.2f} s CPU of the controller"
    )
    print(f"{figures['remote executions']:6d} remote executions a host   (wanted: at most {WANTED_REMOTE})")
    print(f"{figures['seconds'] / figures['one ping seconds']:6.2f} converged run / a play of one ping")
    print(f"{figures['one ssh command seconds']:6.2f} s one ssh command")
    print("\n".join(f"       {what}" for what in figures["what ran"]))


if __name__ == "__main__":
    main()
