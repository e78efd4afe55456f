"""Measure what `provision doctor --text` takes for a long log, beside `grep -E` of the same patterns, in one run.

    python tests/benchmarks/doctor_text.py [--runs N]

The log is made up: a megabyte of lines as training programs, NCCL and kernels write them, and one message that doctor
knows. User time of the whole programs is compared, start included, A B, A B, ... GNU grep takes minutes for repetitions
with bounds, so these are written as `*` for it, look-arounds are left out, and it runs in the locale of UTF-8, in which
it knows the same letters as doctor, and in that of C. Time never makes it fail; a program that misses the message does.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from provision.doctor.engine import rule_of
from provision.matrix.load import Matrix

DOCTOR = (sys.executable, "-c", "import sys; from provision.cli.main import entry; sys.exit(entry())", "doctor", "-q")
MESSAGE = "RuntimeError: Numpy is not available"
BYTES = 1_000_000
WORDS = (
    "loss",
    "step",
    "epoch",
    "tokens",
    "grad",
    "lr",
    "worker",
    "rank",
    "device",
    "cuda",
    "nccl",
    "cache",
    "layer",
    "model",
)
KERNEL = (
    "usb 1-1: new high-speed USB device",
    "EXT4-fs (sda1): mounted filesystem",
    "nvidia-nvlink: Nvlink Core is being initialized",
    "mlx5_core 0000:17:00.0: firmware version: 20.31.1014",
)


def write_log(path: Path) -> None:
    """Write a megabyte of lines, the message in the middle; the same bytes each time."""
    dice = random.Random(4)  # noqa: S311 - the same log each time
    lines: list[str] = []
    written = 0
    while written < BYTES:
        kind = dice.random()
        if kind < 0.5:
            line = (
                f"2025-11-03 10:{dice.randrange(60):02d} [INFO] [rank{dice.randrange(8)}] step {dice.randrange(99999)} "
            )
            line += " ".join(dice.choices(WORDS, k=6))
        elif kind < 0.75:
            line = (
                f"node{dice.randrange(4)}:{dice.randrange(9999)} [0] NCCL INFO Channel {dice.randrange(32):02d} via P2P"
            )
        elif kind < 0.9:
            line = f"[{dice.random() * 9999:12.6f}] {dice.choice(KERNEL)}"
        else:
            line = " ".join(dice.choices(WORDS, k=12))
        lines.append(line)
        written += len(line) + 1
    lines.insert(len(lines) // 2, MESSAGE)
    path.write_text("\n".join(lines) + "\n")


def write_patterns(path: Path) -> int:
    """Write the patterns of all diagnoses as grep takes them, and return how many there are."""
    rows = Matrix().diagnoses.values()
    patterns = dict.fromkeys(pattern for row in rows for pattern in (*rule_of(row).SYMPTOMS, *row.needs))
    written = []
    for pattern in patterns:
        text = re.sub(r"\(\?<?[!=][^()]*\)", "", pattern)
        text = re.sub(r"\(\?P<[a-z_]+>", "(", text).replace("(?:", "(").replace(r"\d", "[0-9]")
        text = re.sub(r"\{[0-9]*,[0-9]*\}", "*", text)
        written.append(re.sub(r"([*+?])\?", r"\1", text))
    path.write_text("\n".join(written) + "\n")
    return len(written)


def user_seconds(command: tuple[str, ...], expected: str, locale: str = "C.UTF-8") -> float:
    """Run a command and return the user time it took; without what is expected in its answer, end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": locale})
    if expected not in done.stdout:
        sys.exit(f"{command[0]} did not find the message: {done.stderr[-400:]}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> None:
    """Measure and print medians and ratios."""
    parser = argparse.ArgumentParser(description="Measure doctor --text against grep -E.")
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        log, patterns = Path(folder) / "log", Path(folder) / "patterns"
        write_log(log)
        count = write_patterns(patterns)
        grep = ("grep", "-E", "-i", "-f", str(patterns), str(log))
        doctor = (*DOCTOR, "--text", str(log))
        user_seconds(doctor, "numpy.abi")
        times: dict[str, list[float]] = {"doctor": [], "grep, UTF-8": [], "grep, C": []}
        for _ in range(runs):
            times["doctor"].append(user_seconds(doctor, "numpy.abi"))
            times["grep, UTF-8"].append(user_seconds(grep, MESSAGE))
            times["grep, C"].append(user_seconds(grep, MESSAGE, "C"))
    print(f"{count} patterns, {BYTES} bytes, {runs} runs")
    for name, found in times.items():
        ratio = median(doctor / other for doctor, other in zip(times["doctor"], found, strict=True))
        print(f"{name:12} {median(found):.3f} s user time; doctor takes {ratio:.2f} times this")


if __name__ == "__main__":
    main()
