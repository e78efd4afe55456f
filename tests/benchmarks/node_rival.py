"""Measure a run over a converged node against one of NVIDIA's own Ansible role, nvidia.nvidia_driver, in one run.

    python tests/benchmarks/node_rival.py ROLE [--collections DIR] [--branch 580] [--runs N] [--json FILE]

ROLE is a checkout of that role, not part of this repository; DIR holds `ansible_collections/community/general`,
whose `modprobe` it wants. Two bare Ubuntu nodes are converged, one by each: the play with the committed lock and
without frameworks, the role with its defaults for Canonical's `-server` packages of the branch, without its restart.
Then both run over what they made, alternately. Told are seconds, the controller's CPU, and modules that ran on the
node.

The role does less: driver, persistence, module options. So the ratio flatters it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from statistics import median

import node_containers as nodes

PREPARE = """
set -eu
sed -i -e 's/^Components: .*/Components: main restricted universe multiverse/' \\
    -e '/^deb /s/ main.*/ main restricted universe multiverse/' $(find /etc/apt -name '*.list' -o -name '*.sources')
apt-get update -q
"""
"""The role takes Canonical's components for given, and reads no package lists; a bare container has neither."""


def write_play(folder: Path, role: Path, collections: Path | None, settings: dict[str, object]) -> Path:
    """Write a play that runs the role, with the collections beside it, and return its path."""
    if not (role / "tasks/main.yml").is_file():
        sys.exit(f"{role} is not a role: it has no tasks/main.yml")
    folder.mkdir(parents=True)
    if collections:
        (folder / "collections").symlink_to(collections.resolve())
    play = {"name": "Install the driver", "hosts": "gpu_nodes", "vars": settings, "roles": [str(role.resolve())]}
    nodes.write_yaml(folder / "rival.yml", [play])
    return folder / "rival.yml"


def sum_up(plays: list[nodes.Play]) -> dict[str, float]:
    """Return what runs over a converged node cost."""
    return {
        "seconds": median(play.seconds for play in plays),
        "controller cpu seconds": median(play.controller_cpu_seconds for play in plays),
        "remote executions": max(play.remote_executions[0] for play in plays),
        "changed": max(play.changed for play in plays),
    }


def main() -> None:
    """Read the command line, measure, print, clean up."""
    parser = argparse.ArgumentParser(description="Measure converged runs of the play and of NVIDIA's role.")
    parser.add_argument("role", type=Path, help="checkout of the role")
    parser.add_argument("--collections", type=Path, help="folder with ansible_collections")
    parser.add_argument("--release", default="noble", help="release of the nodes; the role knows Ubuntu")
    parser.add_argument("--branch", default="580", help="driver branch that the role is asked for")
    parser.add_argument("--packages", nargs="+", help="packages for the role, instead of its own list")
    parser.add_argument("--runs", type=int, default=5, help="converged runs of each")
    parser.add_argument("--only-role", action="store_true", help="leave the play out, to try the role alone")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    nodes.need_engine()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    settings: dict[str, object] = {"nvidia_driver_branch": arguments.branch, "nvidia_driver_skip_reboot": True}
    if arguments.packages:
        settings["nvidia_driver_ubuntu_packages"] = arguments.packages
    with tempfile.TemporaryDirectory(prefix="pvb-") as scratch:
        rival = write_play(Path(scratch) / "rival", arguments.role, arguments.collections, settings)
        site = nodes.Site(Path(scratch) / "nodes", arguments.release, 2, scenario="ubuntu")
        with site.running():
            ours, theirs = ([name] for name in site.names)
            skip = ("--skip-tags", "frameworks")
            site.on(theirs[0], "sh", "-c", PREPARE)
            nodes.say("converging with the role")
            site.play(playbook=rival, limit=theirs)
            if not arguments.only_role:
                nodes.say("converging with the play")
                site.play(*skip, limit=ours)
            runs: dict[str, list[nodes.Play]] = {"play": [], "role": []}
            for number in range(arguments.runs):
                nodes.say(f"run {number + 1} of {arguments.runs}")
                if not arguments.only_role:
                    runs["play"].append(site.play(*skip, limit=ours))
                    if runs["play"][-1].changed:
                        sys.exit("the play changed something on a converged node")
                runs["role"].append(site.play(playbook=rival, limit=theirs))
    figures = {name: sum_up(plays) for name, plays in runs.items() if plays}
    nodes.write_json(arguments.json, figures)
    print(f"{'':6} {'seconds':>8} {'CPU':>6} {'remote executions':>18} {'changed':>8}")
    for name, row in figures.items():
        print(
            f"{name:6} {row['seconds']:8.2f} {row['controller cpu seconds']:6.2f} "
            f"{row['remote executions']:18.0f} {row['changed']:8.0f}"
        )
    if len(figures) == 2:
        print(f"{figures['play']['seconds'] / figures['role']['seconds']:6.2f} seconds, play / role")


if __name__ == "__main__":
    main()
