"""Measure what locking an image with lines of its own costs beside `uv pip compile` of the same lines.

    python tests/benchmarks/lock_whole.py [LIST ...] [--runs N] [--json FILE]

Both are whole processes and ask the index that this machine is told of, with a warm cache of uv. Each list is run as
A B, A B, ..., so that a busy machine slows both alike; uv gets the framework in the version that the lock has, the same
index, interpreter, Python and platform, the same day, and writes hashes too. The ratios of pairs are what to quote;
time never makes it fail.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from provision.build.uv import find_uv
from provision.index.address import known_index

CHECKOUT = Path(__file__).resolve().parents[2]
PROVISION = (sys.executable, "-c", "import sys; from provision.cli.main import entry; sys.exit(entry())")
LISTS = {
    "three lines": ("--torch 2.4", "einops", "tqdm", "requests"),
    "training": ("--torch 2.4", "transformers<4.50", "accelerate<1", "datasets<3", "peft<0.14", "tensorboard"),
    "serving": ("--torch 2.6", "fastapi", "uvicorn[standard]", "transformers<4.52", "sentencepiece", "protobuf<6"),
    "vision": ("--torch 2.5", "timm", "albumentations<2", "opencv-python-headless<4.12", "scikit-image", "wandb<0.20"),
    "a jax list": ("--jax 0.4.30 --cuda 12", "flax<0.9", "optax<0.3", "orbax-checkpoint<0.7", "datasets<3"),
}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure the lock of lines against uv.")
    parser.add_argument("lists", nargs="*", type=Path, help="requirements files to measure in place of the lists here")
    parser.add_argument("--runs", type=int, default=5, help="timed pairs of each list")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs: at least one")
    with tempfile.TemporaryDirectory() as scratch:
        lists = {file.parent.name: ("", *file.read_text().splitlines()) for file in arguments.lists} or LISTS
        rows = {name: measure(Path(scratch), lines, arguments.runs) for name, lines in lists.items()}
    figures = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "runs": arguments.runs, "lists": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{os.cpu_count()} CPUs, load {figures['load']:.1f}, {arguments.runs} pairs; medians, seconds")
    print(f"{'list':20}{'packages':>9}{'provision':>11}{'uv':>7}{'ratio':>7}{'cpu ratio':>11}")
    for name, row in rows.items():
        print(
            f"{name[:19]:20}{row['packages']:9}{row['provision']:11.2f}{row['uv']:7.2f}{row['ratio']:7.2f}{row['cpu']:11.2f}"
        )
    print(f"{'geometric mean':47}{geometric_mean(row['ratio'] for row in rows.values()):7.2f}")


def measure(scratch: Path, lines: Sequence[str], runs: int) -> dict[str, Any]:
    """Pair one lock with one `uv pip compile`."""
    listed, out = scratch / "own.txt", scratch / "out"
    listed.write_text("".join(f"{line}\n" for line in lines[1:]))
    ours = [*PROVISION, "image", *lines[0].split(), "-r", str(listed), "-o", str(out), "-q"]
    timed(ours)
    lock = json.loads((out / "provision.lock").read_text())
    frameworks = [f"{name}=={version}" for name, version in lock["frameworks"].items()]
    both = scratch / "both.txt"
    both.write_text("".join(f"{line}\n" for line in (*frameworks, *lines[1:])))
    day = datetime.date.fromisoformat(lock["facts_date"]) + datetime.timedelta(days=1)
    theirs = [find_uv(), "pip", "compile", str(both), "-o", str(scratch / "locked.txt"), "--generate-hashes", "--quiet"]
    theirs += ["--no-config", "--python-version", lock["python"], "--python-platform", "x86_64-manylinux_2_28"]
    # uv would look for an interpreter of that version, which can take seconds.
    theirs += ["--exclude-newer", f"{day}T00:00:00Z", "--python", sys.executable]
    if (index := known_index()) is not None:
        theirs += ["--default-index", index.url]
    timed(theirs)
    pairs = []
    for _ in range(runs):
        shutil.rmtree(out)
        (scratch / "locked.txt").unlink()
        pairs.append((timed(ours), timed(theirs)))
    return {
        "packages": len(lock["packages"]),
        "provision": median(mine[0] for mine, _ in pairs),
        "uv": median(other[0] for _, other in pairs),
        "ratio": median(mine[0] / other[0] for mine, other in pairs),
        "cpu": median(mine[1] / other[1] for mine, other in pairs),
    }


def timed(words: Sequence[str]) -> tuple[float, float]:
    """Run a command and return its wall and CPU seconds, those of its children too."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    environment.pop("UV_OFFLINE", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    child = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(words)} ended with {child.returncode}:\n{said}")
    return wall, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
