"""Measure how a run over converged nodes grows with their number: 1, 4, 16 containers over ssh.

    python tests/benchmarks/node_scale.py [--counts 1 4 16] [--release bookworm] [--skip-tags TAGS] [--json FILE]

All nodes share the CPUs of the machine that measures, and of the controller; so the cost of a host that is told is the
controller's CPU, and seconds are told beside it. As many hosts are worked on at once as there are. A node that does not
begin converged is converged once and kept as an image for the rest of the run.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import node_containers as nodes


def converge(folder: Path, release: str, skip: tuple[str, ...]) -> str:
    """Converge one node, keep it, and return what the others start from."""
    suffix = f"bench-{secrets.token_hex(4)}"
    with nodes.Site(folder, release, 1, "converged").running() as site:
        nodes.say("converging one node")
        site.play(*skip)
        site.keep(suffix)
    return suffix


def main() -> None:
    """Read the command line, measure, print, clean up."""
    parser = argparse.ArgumentParser(description="Measure converged runs over 1, 4, 16 nodes.")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 4, 16], help="how many nodes")
    parser.add_argument("--release", default="bookworm", help="release of the nodes")
    parser.add_argument("--skip-tags", default="none", help="what the play leaves out")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    nodes.need_engine()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    skip = ("--skip-tags", arguments.skip_tags)
    rows = []
    with tempfile.TemporaryDirectory(prefix="pvb-") as scratch:
        kept = converge(Path(scratch) / "first", arguments.release, skip)
        try:
            for count in arguments.counts:
                nodes.say(f"{count} nodes")
                with nodes.Site(Path(scratch) / str(count), arguments.release, count, kept).running() as site:
                    # A host's first play opens its connection and writes what differs by its name.
                    site.play(*skip)
                    play = site.play(*skip)
                if play.changed:
                    sys.exit(f"a run over {count} converged nodes changed {play.changed} things")
                rows.append(
                    {
                        "hosts": count,
                        "seconds": play.seconds,
                        "seconds a host": play.seconds / count,
                        "controller cpu a host": play.controller_cpu_seconds / count,
                        "remote executions a host": max(play.remote_executions),
                    }
                )
        finally:
            image = f"provision-test/node:{arguments.release}-{kept}"
            subprocess.run(["docker", "image", "rm", image], check=False, capture_output=True)
    nodes.write_json(arguments.json, rows)
    print(f"{'hosts':>5} {'seconds':>8} {'a host':>8} {'CPU a host':>10} {'remote executions':>18}")
    for row in rows:
        print(
            f"{row['hosts']:5.0f} {row['seconds']:8.2f} {row['seconds a host']:8.2f} "
            f"{row['controller cpu a host']:10.2f} {row['remote executions a host']:18.0f}"
        )
    cheapest = min(row["controller cpu a host"] for row in rows)
    print(
        f"{rows[-1]['controller cpu a host'] / cheapest:6.2f}  CPU a host, {rows[-1]['hosts']} hosts / the cheapest row"
    )


if __name__ == "__main__":
    main()
