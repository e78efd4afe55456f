"""Measure what a command costs from the shell, as ratios within one run.

    python tests/benchmarks/start_up.py [image|batch|all] [--runs N] [--json FILE]

``image`` pairs ``provision image``, which writes a whole context into a fresh folder, with hpccm, which prints a
Dockerfile with the same base, pins, user, labels and variables. Each request is run as A B, A B, ..., so that a busy
machine slows both alike. ``batch`` resolves every published row in one process. Time never makes it fail; a command
that does not do its work does.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from provision.matrix.load import Matrix

CHECKOUT = Path(__file__).resolve().parents[2]
# Both programs start as their console scripts do: an import and a call.
PROVISION = (sys.executable, "-c", "import sys; from provision.cli.main import entry; sys.exit(entry())")
HPCCM = (sys.executable, "-c", "import sys; from hpccm.cli import main; sys.exit(main())", "--recipe")
FLOORS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "import argparse, json": (sys.executable, "-c", "import argparse, json"),
}
USER_LINES = "einops\ntqdm>=4.60\n"
REQUESTS = {
    "headline (cu118)": ("--cuda", "11.8", "--torch", "2.1"),
    "torch cu121": ("--torch", "2.1", "--cuda", "12.1", "--python", "3.11"),
    "newest torch": ("--torch", "2"),
    "torch jit": ("--torch", "2.4", "--flavor", "jit"),
    "torch devel": ("--torch", "2.5", "--cuda", "12.4", "--flavor", "devel"),
    "tensorflow wheels": ("--tensorflow", "2.15"),
    "tensorflow system": ("--tensorflow", "2.12"),
    "jax cuda12": ("--jax", "0.4.30", "--cuda", "12"),
    "torch with -r": ("--torch", "2.3", "-r", "{user}"),
    "gpu and driver": ("--torch", "2.5", "--gpu", "h100", "--driver", "550"),
    "arm64": ("--torch", "2.7", "--platform", "linux/arm64"),
    "cuda only": ("--cuda", "12.4"),
    "cuda only, devel": ("--cuda", "12.4", "--flavor", "devel"),
}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure the command line.")
    parser.add_argument("mode", nargs="?", choices=("image", "batch", "all"), default="all")
    parser.add_argument("--runs", type=int, default=7, help="timed runs of each command")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs: at least one")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), arguments.runs)
        figures: dict[str, Any] = {"python": sys.version.split()[0], "cpus": os.cpu_count(), "runs": arguments.runs}
        figures["load_before"] = os.getloadavg()[0]
        if arguments.mode != "batch":
            if importlib.util.find_spec("hpccm") is None:
                sys.exit("skipped: hpccm is not installed (`pip install hpccm`), so there is nothing to compare with")
            figures["image"] = measure_images(bench)
        if arguments.mode != "image":
            figures["batch"] = measure_batch(bench)
        figures["load_after"] = os.getloadavg()[0]
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    show(figures)
    if refused := figures.get("batch", {}).get("refused"):
        sys.exit(f"{len(refused)} published rows were refused, the first is {refused[0]}")


class Bench:
    """Runs commands and times whole processes.

    Args:
        scratch: Folder for all that the commands write.
        runs: Timed runs of each command.
    """

    def __init__(self, scratch: Path, runs: int) -> None:
        self.scratch = scratch
        self.runs = runs
        self.environment = {**os.environ, "PROVISION_CACHE_DIR": str(scratch / "cache")}
        # Someone's shell may forbid bytecode; an installed program has it.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        paths = [str(CHECKOUT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self.environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))

    def time(self, words: Sequence[str], output: Path | None = None, **changes: str) -> tuple[float, float]:
        """Run a command and return its wall and CPU seconds; end the benchmark when it fails."""
        with (output or Path(os.devnull)).open("wb") as stdout, (self.scratch / "stderr").open("wb") as stderr:
            started = time.perf_counter()
            # `python -c` imports from the current folder first, which must not be another checkout.
            child = subprocess.Popen(
                words, cwd=self.scratch, stdout=stdout, stderr=stderr, env={**self.environment, **changes}
            )
            _, status, usage = os.wait4(child.pid, 0)
            wall = time.perf_counter() - started
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said = (self.scratch / "stderr").read_text(errors="replace")
            sys.exit(f"{' '.join(words)} ended with {child.returncode}:\n{said}")
        return wall, usage.ru_utime + usage.ru_stime


def measure_images(bench: Bench) -> dict[str, Any]:
    """Pair `provision image` with hpccm over all requests, and time the floors beside them."""
    pairs = {}
    for number, (name, words) in enumerate(REQUESTS.items()):
        filled = [word.format(user=write(bench.scratch / "user.txt", USER_LINES)) for word in words]
        recipe = write(bench.scratch / f"{number}.py", recipe_of(bench, filled))
        pairs[name] = (filled, (*HPCCM, str(recipe)))
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    # The first round compiles bytecode and fills the parse cache, and is not counted.
    for round_number in range(bench.runs + 1):
        for floor, words in FLOORS.items():
            times.setdefault(("floor", floor), []).append(bench.time(words))
        for name, (ours, theirs) in pairs.items():
            folder = bench.scratch / "out" / "context"
            # hpccm asks no index either; `lock_whole.py` measures what asking costs.
            command = (*PROVISION, "image", *ours, "--offline", "-o", str(folder))
            times.setdefault(("provision", name), []).append(bench.time(command))
            if not (folder / "Dockerfile").is_file() or not (folder / "provision.lock").is_file():
                sys.exit(f"{name}: the context was not written")
            shutil.rmtree(folder.parent)
            printed = bench.scratch / "printed"
            times.setdefault(("hpccm", name), []).append(bench.time(theirs, printed))
            if round_number == 0 and not printed.read_text().startswith("FROM "):
                sys.exit(f"{name}: hpccm printed no Dockerfile")
    counted = {key: summarise(samples[1:]) for key, samples in times.items()}
    rows = {}
    for name in REQUESTS:
        row = {side: counted[side, name] for side in ("provision", "hpccm")}
        ratio = {key: row["provision"][key] / row["hpccm"][key] for key in row["hpccm"]}
        rows[name] = {**row, "ratio": ratio}
    means = {key: geometric_mean(row["ratio"][key] for row in rows.values()) for key in ("wall_min", "wall", "cpu")}
    return {
        "floors": {name: counted["floor", name] for name in FLOORS},
        "requests": rows,
        "geometric_mean": means,
        "first_run": first_run(bench),
    }


def first_run(bench: Bench) -> dict[str, float]:
    """Time the headline request without the parse cache, as the first run on a machine is."""
    samples = []
    for number in range(3):
        cache, folder = bench.scratch / f"cold-{number}", bench.scratch / f"first-{number}"
        words = [*PROVISION, "image", *REQUESTS["headline (cu118)"], "-o", str(folder)]
        samples.append(bench.time(words, PROVISION_CACHE_DIR=str(cache)))
    return summarise(samples)


def recipe_of(bench: Bench, words: Sequence[str]) -> str:
    """Return an hpccm recipe for what one request resolves to."""
    answer = bench.scratch / "answer.json"
    bench.time([*PROVISION, "resolve", *words, "--json"], answer)
    stack = json.loads(answer.read_text())["result"]["stack"]
    image = stack["image"]
    pins = sorted(f"{name}=={version}" for name, version in stack["packages"].items())
    labels = {
        "org.opencontainers.image.title": "comparable",
        "org.opencontainers.image.base.name": image["base"]["ref"],
        "cuda": stack["cuda"],
        "archs": " ".join([*stack["sm"], *stack["ptx"]]),
        "lock": stack["lock_digest"],
    }
    variables = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_DRIVER": f"driver>={stack['driver']['minimum']}",
    }
    lines = [
        # hpccm knows no Debian and would stop to warn about it.
        f"Stage0 += baseimage(image={image['base']['ref']!r}, _distro='ubuntu22')",
        *([f"Stage0 += packages(apt={image['apt']!r})"] if image["apt"] else []),
        "Stage0 += shell(commands=['useradd --uid 10001 --create-home app', 'mkdir -p /workspace'])",
        *([f"Stage0 += pip(pip='pip3', ospackages=[], packages={pins!r})"] if pins else []),
        f"Stage0 += environment(variables={variables!r})",
        f"Stage0 += label(metadata={labels!r})",
        "Stage0 += workdir(directory='/workspace')",
        "Stage0 += user(user='10001:10001')",
        "Stage0 += runscript(commands=['python3'])",
    ]
    return "\n".join(lines) + "\n"


def measure_batch(bench: Bench) -> dict[str, Any]:
    """Resolve every published row in one process."""
    lines = [json.dumps(values) for values in all_rows(Matrix())]
    file = write(bench.scratch / "requests", "\n".join(lines) + "\n")
    answers = bench.scratch / "answers"
    floor, whole = [], []
    # The first of the runs is not counted: it fills the parse cache.
    for _ in range(min(bench.runs, 3) + 1):
        floor.append(bench.time(FLOORS["python -c pass"]))
        whole.append(bench.time([*PROVISION, "resolve", "-q", "--batch", str(file)], answers))
    documents = [json.loads(line) for line in answers.read_text().splitlines()]
    if len(documents) != len(lines):
        sys.exit(f"resolve --batch answered {len(documents)} of {len(lines)} rows")
    refused = [line for line, document in zip(lines, documents, strict=True) if not document["ok"]]
    total, base = summarise(whole[1:]), summarise(floor[1:])
    return {
        "rows": len(lines),
        "refused": refused,
        "total": total,
        "milliseconds_a_row": 1000 * total["wall"] / len(lines),
        "floor": base,
        "ratio": total["wall"] / base["wall"],
        "ratio_a_row": total["wall"] / len(lines) / base["wall"],
    }


def all_rows(matrix: Matrix) -> Iterator[dict[str, str]]:
    """Yield a request for every published build and each of its Pythons."""
    for build in matrix.torch_builds:
        for python in build.pythons:
            yield {"torch": build.torch, "cuda": build.cuda, "python": python}
    for tensorflow in matrix.tensorflow:
        for python in tensorflow.pythons:
            yield {"tensorflow": tensorflow.version, "python": python}
    for jax in matrix.jax:
        for python in jax.pythons:
            yield {"jax": jax.version, "cuda": jax.variant.removeprefix("cuda"), "python": python}


def summarise(samples: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the seconds of some runs: smallest and median wall time, and median CPU time."""
    walls = [wall for wall, _ in samples]
    return {"wall_min": min(walls), "wall": median(walls), "cpu": median(cpu for _, cpu in samples)}


def write(path: Path, text: str) -> Path:
    """Write a file and return its path."""
    path.write_text(text)
    return path


def show(figures: dict[str, Any]) -> None:
    """Print the figures as tables; times in milliseconds."""
    print(f"Python {figures['python']}, {figures['cpus']} CPUs, load {figures['load_before']:.1f}", end="")
    print(f" to {figures['load_after']:.1f}, {figures['runs']} runs; milliseconds")
    if image := figures.get("image"):
        print(f"\n{'':24}{'provision image':^24}{'hpccm':^24}{'ratio':^24}")
        print(f"{'request':24}" + 3 * f"{'min':>8}{'median':>8}{'cpu':>8}")
        for name, row in image["requests"].items():
            cells = [1000 * row[side][key] for side in ("provision", "hpccm") for key in ("wall_min", "wall", "cpu")]
            ratios = "".join(f"{row['ratio'][key]:8.2f}" for key in ("wall_min", "wall", "cpu"))
            print(f"{name:24}{''.join(f'{cell:8.0f}' for cell in cells)}{ratios}")
        means = "".join(f"{image['geometric_mean'][key]:8.2f}" for key in ("wall_min", "wall", "cpu"))
        print(f"{'geometric mean':72}{means}")
        floors = {**image["floors"], "first run, no cache": image["first_run"]}
        for name, row in floors.items():
            print(f"{name:24}{''.join(f'{1000 * row[key]:8.0f}' for key in ('wall_min', 'wall', 'cpu'))}")
    if batch := figures.get("batch"):
        print(f"\nresolve --batch: {batch['rows']} rows in {batch['total']['wall']:.2f} s", end="")
        print(f" (cpu {batch['total']['cpu']:.2f} s), {batch['milliseconds_a_row']:.2f} ms a row")
        print(f"  against `python -c pass`: {batch['ratio']:.0f} x whole, {batch['ratio_a_row']:.2f} x a row")


if __name__ == "__main__":
    main()
