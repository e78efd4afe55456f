"""Measure what locking an image with lines of its own costs beside `uv pip compile` of the same lines.

    python tests/benchmarks/lock_whole.py [LIST ...] [--project DIR ...] [--cold] [--runs N] [--json FILE]

Both are whole processes and ask the index that this machine is told of, with a warm cache of uv, or with `--cold` with
an empty one each time. Each list is run as A B, A B, ..., so that a busy machine slows both alike; uv gets the
framework in the version that the lock has, the same index, interpreter, Python and platform, the same day, and writes
hashes too. A project is locked without and with its code; uv gets its `pyproject.toml` or `requirements.txt` as it is.
The ratios of pairs are what to quote; time never makes it fail.
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
from collections.abc import Callable, Sequence
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
    parser.add_argument("--project", type=Path, action="append", default=[], help="folder of a project to measure")
    parser.add_argument("--cold", action="store_true", help="begin each run with an empty cache")
    parser.add_argument("--runs", type=int, default=5, help="timed pairs of each list")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs: at least one")
    with tempfile.TemporaryDirectory() as scratch:
        lists = {file.parent.name: ("", *file.read_text().splitlines()) for file in arguments.lists}
        lists = lists or ({} if arguments.project else LISTS)
        given = (Path(scratch), arguments.runs, arguments.cold)
        rows = {name: measure_list(*given, lines) for name, lines in lists.items()}
        for folder in arguments.project:
            for words in ((), ("--copy", str(folder.resolve()))):
                name = f"{folder.resolve().name}{' and its code' if words else ''}"
                rows[name] = measure_project(*given, folder.resolve(), words)
    figures = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "runs": arguments.runs, "lists": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{os.cpu_count()} CPUs, load {figures['load']:.1f}, {arguments.runs} pairs; medians, seconds")
    print(f"{'list':34}{'packages':>9}{'provision':>11}{'uv':>7}{'ratio':>7}{'cpu ratio':>11}")
    for name, row in rows.items():
        print(
            f"{name[:33]:34}{row['packages']:9}{row['provision']:11.2f}{row['uv']:7.2f}{row['ratio']:7.2f}{row['cpu']:11.2f}"
        )
    print(f"{'geometric mean':61}{geometric_mean(row['ratio'] for row in rows.values()):7.2f}")


def measure_list(scratch: Path, runs: int, is_cold: bool, lines: Sequence[str]) -> dict[str, Any]:
    """Pair one lock with one `uv pip compile`."""
    listed, both = scratch / "own.txt", scratch / "both.txt"
    listed.write_text("".join(f"{line}\n" for line in lines[1:]))

    def write(lock: dict[str, Any]) -> Path:
        frameworks = [f"{name}=={version}" for name, version in lock["frameworks"].items()]
        both.write_text("".join(f"{line}\n" for line in (*frameworks, *lines[1:])))
        return both

    return measure(scratch, runs, is_cold, (*lines[0].split(), "-r", str(listed)), write)


def measure_project(scratch: Path, runs: int, is_cold: bool, folder: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """Pair one lock of a project, or of it and its code, with one `uv pip compile` of its file."""
    file = next(path for name in ("requirements.txt", "pyproject.toml") if (path := folder / name).is_file())
    return measure(scratch, runs, is_cold, ("--project", str(folder), *words), lambda _: file)


def measure(
    scratch: Path, runs: int, is_cold: bool, words: Sequence[str], write: Callable[[dict[str, Any]], Path]
) -> dict[str, Any]:
    """Pair runs of both.

    Args:
        scratch: An empty folder.
        runs: How many pairs.
        is_cold: Begin each run with an empty cache.
        words: What `provision image` locks.
        write: Returns the file that uv gets, once the lock is known.
    """
    out, cache = scratch / "out", scratch / "cache"
    ours = [*PROVISION, "image", *words, "-o", str(out), "-q"]
    timed(ours)
    lock = json.loads((out / "provision.lock").read_text())
    day = datetime.date.fromisoformat(lock["facts_date"]) + datetime.timedelta(days=1)
    locked = scratch / "locked.txt"
    theirs = [find_uv(), "pip", "compile", str(write(lock)), "-o", str(locked), "--generate-hashes", "--quiet"]
    theirs += ["--no-config", "--python-version", lock["python"], "--python-platform", "x86_64-manylinux_2_28"]
    # uv would look for an interpreter of that version, which can take seconds.
    theirs += ["--exclude-newer", f"{day}T00:00:00Z", "--python", sys.executable]
    if (index := known_index()) is not None:
        theirs += ["--default-index", index.url]
    timed(theirs)
    pairs = []
    for _ in range(runs):
        pair = []
        for command in (ours, theirs):
            shutil.rmtree(out, ignore_errors=True)
            locked.unlink(missing_ok=True)
            shutil.rmtree(cache, ignore_errors=True)
            pair.append(timed(command, cache if is_cold else None))
        pairs.append(pair)
    return {
        "packages": len(lock["packages"]),
        "provision": median(mine[0] for mine, _ in pairs),
        "uv": median(other[0] for _, other in pairs),
        "ratio": median(mine[0] / other[0] for mine, other in pairs),
        "cpu": median(mine[1] / other[1] for mine, other in pairs),
    }


def timed(words: Sequence[str], cache: Path | None = None) -> tuple[float, float]:
    """Run a command, with the usual cache or another, and return its wall and CPU seconds, with those of children."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    if cache is not None:
        environment |= {"UV_CACHE_DIR": str(cache / "uv"), "XDG_CACHE_HOME": str(cache)}
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
