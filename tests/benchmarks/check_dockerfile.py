"""Time `provision check` on a Dockerfile of 200 lines against `provision --version`, as ratios within one run.

    python tests/benchmarks/check_dockerfile.py [--runs N] [--json FILE]

The two are run in turn, whole processes, after a first round that compiles bytecode and fills the cache of parsed
facts. Three Dockerfiles are checked: one without a framework, one with torch pinned and one with several stages.
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
from statistics import median

LINES = 200
ENDINGS = {
    "no framework": ["RUN pip install --no-cache-dir flask==3.0.0 requests==2.32.3", "USER 1000"],
    "torch": [
        "RUN pip install --no-cache-dir torch==2.4.1 --index-url https://download.pytorch.org/whl/cu121",
        "RUN pip install --no-cache-dir numpy==1.26.4 transformers==4.44.2",
        "USER 1000",
    ],
    "stages": [
        "RUN pip install --no-cache-dir torch==2.4.1 --index-url https://download.pytorch.org/whl/cu121",
        "FROM nvidia/cuda:12.1.1-runtime-ubuntu22.04",
        "COPY --from=build /opt/venv /opt/venv",
        "USER 1000",
    ],
}
PROGRAM = (sys.executable, "-c", "from provision.cli.main import entry; entry()")


def make(ending: list[str]) -> str:
    """Return a Dockerfile of 200 lines that ends in some way."""
    lines = ["FROM nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04 AS build", "ENV DEBIAN_FRONTEND=noninteractive"]
    number = 0
    while len(lines) + 6 <= LINES - len(ending):
        number += 1
        lines += [
            "RUN apt-get update && apt-get install -y --no-install-recommends \\",
            f"      libfirst{number} \\",
            f"      libsecond{number} \\",
            "    && rm -rf /var/lib/apt/lists/*",
            f'ENV NAME{number}="value {number}"',
            f"COPY src/file{number}.py /app/file{number}.py",
        ]
    lines += ["# filler"] * (LINES - len(lines) - len(ending))
    return "\n".join([*lines, *ending]) + "\n"


def run(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run the program once; return wall and CPU seconds."""
    started = time.perf_counter()
    child = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 6):
        sys.exit(f"{' '.join(words)} ended with {child.returncode}")
    return wall, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        commands = {"provision --version": ["--version"]}
        for name, ending in ENDINGS.items():
            file = Path(folder) / name.replace(" ", "-") / "Dockerfile"
            file.parent.mkdir()
            file.write_text(make(ending))
            commands[f"check, {name}"] = ["check", "-q", str(file)]
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(options.runs + 1):
            for name, words in commands.items():
                sample = run(words, environment)
                if number:
                    samples[name].append(sample)
    figures = {
        name: {
            "wall_min": min(wall for wall, _ in taken),
            "wall": median(wall for wall, _ in taken),
            "cpu": median(cpu for _, cpu in taken),
        }
        for name, taken in samples.items()
    }
    floor = figures["provision --version"]
    print(f"{LINES} lines, {options.runs} runs, load {os.getloadavg()[0]:.1f}; milliseconds, and how often --version")
    print(f"{'':24}{'min':>8}{'median':>8}{'cpu':>8}{'':4}{'min':>8}{'median':>8}{'cpu':>8}")
    for name, row in figures.items():
        times = "".join(f"{1000 * row[key]:8.0f}" for key in row)
        print(f"{name:24}{times}{'':4}" + "".join(f"{row[key] / floor[key]:8.2f}" for key in row))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
