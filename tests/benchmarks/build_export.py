"""Measure what handing one layer over costs in this engine's store, export by export, as ratios within one run.

    python tests/benchmarks/build_export.py FOLDER [--json FILE]

The contents of FOLDER (an installed framework, some GB) become one layer. It is built first without being handed
over; then each export is timed alone. ``provision.build.export`` rests on these figures. Another engine, such as one
with the containerd store, is measured by naming it in DOCKER_HOST.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from provision.build.engine import find_engine
from provision.build.export import CONTAINERD, choose_export

NAME = "provision-bench:export"
OTHERS = ("gzip", "zstd", "uncompressed")


def build(folder: Path, dockerfile: Path, output: str) -> float:
    """Build with one output and return the seconds of the whole command."""
    # What was written before must not be paid for by this build.
    os.sync()
    started = time.monotonic()
    subprocess.run(
        ["docker", "buildx", "build", "--quiet", f"--file={dockerfile}", f"--output={output}", str(folder)],
        env={**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},
        stdout=sys.stderr,
        check=True,
    )
    return time.monotonic() - started


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure the exports of one layer.")
    parser.add_argument("folder", type=Path, help="its contents become the layer")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    store = find_engine().image_store
    chosen = choose_export(store, "local")
    outputs = {"chosen": chosen.output() or ""}
    if store == CONTAINERD:
        outputs |= {name: f"type=image,compression={name}" for name in OTHERS}
    with tempfile.TemporaryDirectory() as scratch:
        dockerfile = Path(scratch) / "Dockerfile"
        seconds = {}
        try:
            for name, output in outputs.items():
                # A layer that one export has compressed is taken as it is by the next, so each gets its own.
                dockerfile.write_text(f"FROM scratch\nCOPY . /{name}/\n")
                build(arguments.folder, dockerfile, "type=cacheonly")
                seconds[name] = build(arguments.folder, dockerfile, f"{output},name={NAME}")
        finally:
            subprocess.run(["docker", "image", "rm", NAME], capture_output=True, check=False)
    total = sum(path.stat().st_size for path in arguments.folder.rglob("*") if path.is_file())
    ratios = {name: value / seconds["chosen"] for name, value in seconds.items()}
    figures = {
        "store": store,
        "why": chosen.why,
        "bytes": total,
        "seconds": seconds,
        "ratios": ratios,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    print(f"{store} store, {total / 1e6:.0f} MB; {chosen.why}")
    for name, value in seconds.items():
        print(f"{name:<14}{value:7.1f} s   {ratios[name]:5.2f} x   {outputs[name]}")


if __name__ == "__main__":
    main()
