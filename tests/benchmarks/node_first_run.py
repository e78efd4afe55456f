"""Measure the whole first run of the play against a shell script that does the same apt and DKMS work.

    python tests/benchmarks/node_first_run.py [--release bookworm] [--runs N] [--skip-tags frameworks] [--json FILE]

Both start from the same bare container with systemd. The play runs over ssh, everything it has to do included: facts,
preflight, repositories, pins, kernel headers, driver, proof. Then the script gets what the play could not know before:
the final list of packages with their versions. It takes the play's own apt sources, reads the lists, and installs
exactly these packages in one transaction, in which DKMS compiles the same module. So the script is the floor, not a
rival that does the same job; the ratio is the price of everything else. Frameworks are left out by default: that is
pip's time, not apt's.
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

PACKAGES = ("dpkg-query", "-W", "-f", "${binary:Package}=${Version}\n")
WANTED = 1.15
SCRIPT = """
set -eu
export DEBIAN_FRONTEND=noninteractive
tar -C /etc/apt -xf /root/apt.tar
apt-get update -q
xargs -a /root/packages apt-get install -y -q --no-install-recommends
dkms status
"""


def packages(site: nodes.Site, name: str) -> set[str]:
    """Return what is installed on a node, as ``name=version``."""
    return set(site.on(name, *PACKAGES).decode().split())


def measure(site: nodes.Site, skip_tags: str) -> dict[str, float]:
    """Run the play on the first node and the script on the second."""
    played, scripted = site.names
    before = packages(site, played)
    nodes.say("the play")
    play = site.play("--skip-tags", skip_tags, limit=[played])
    new = packages(site, played) - before
    if not new:
        sys.exit("the play installed nothing: there is nothing to compare with")
    sources = site.on(played, "tar", "-C", "/etc/apt", "-cf", "-", ".")
    site.on(scripted, "sh", "-c", "cat >/root/apt.tar", stdin=sources)
    site.on(scripted, "sh", "-c", "cat >/root/packages", stdin="\n".join(sorted(new)).encode())
    nodes.say(f"the script, {len(new)} packages")
    started = time.monotonic()
    said = site.on(scripted, "sh", "-c", SCRIPT).decode()
    seconds = time.monotonic() - started
    if not any(line.endswith("installed") for line in said.splitlines()):
        sys.exit(f"DKMS compiled nothing for the script:\n{said[-1000:]}")
    differing = packages(site, played) ^ packages(site, scripted)
    return {
        "play seconds": play.seconds,
        "script seconds": seconds,
        "ratio": play.seconds / seconds,
        "remote executions": play.remote_executions[0],
        "packages": len(new),
        "packages that differ afterwards": len(differing),
    }


def main() -> None:
    """Read the command line, measure, print, clean up."""
    parser = argparse.ArgumentParser(description="Measure the first run of the play against a shell script.")
    parser.add_argument("--release", default="bookworm", help="release of the nodes")
    parser.add_argument("--runs", type=int, default=1, help="how often both are run")
    parser.add_argument("--skip-tags", default="frameworks", help="what the play leaves out")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    nodes.need_engine()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures = []
    with tempfile.TemporaryDirectory(prefix="pvb-") as scratch:
        for number in range(arguments.runs):
            with nodes.Site(Path(scratch) / str(number), arguments.release, 2).running() as site:
                figures.append(measure(site, arguments.skip_tags))
    nodes.write_json(arguments.json, figures)
    for row in figures:
        print(", ".join(f"{name} {value:.2f}".removesuffix(".00") for name, value in row.items()))
    print(f"{median(row['ratio'] for row in figures):6.3f}  play / script, seconds   (wanted: at most {WANTED})")


if __name__ == "__main__":
    main()
