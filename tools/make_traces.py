"""Write the traces of docs/traces/: loads of our own making, by the same numbers every time.

``stages.csv`` is the load of an article's example: 4 GPUs for one half of the time, 16 for the other.
``day-night.csv`` offers as much in the mean, in jobs that come at random and differ in length, and ``steady.csv``
offers the same all the time.

usage: python -m tools.make_traces --write | --check
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "traces"
HOUR, DAY = 3600, 86_400
DAYS = 5
LOW, HIGH = 4, 16
MORNING, EVENING = 8, 20
# Jobs of one GPU, as long as this and evenly spread.
SHORTEST, LONGEST = 600, 6600


def stages() -> str:
    """Return 16 busy GPUs from 8 to 20 o'clock and 4 else, for five days."""
    lines = [f"# {LOW} GPUs by night and {HIGH} by day, {DAYS} days", "time_seconds,gpus_busy", f"0,{LOW}"]
    for day in range(DAYS):
        lines += [f"{day * DAY + MORNING * HOUR},{HIGH}", f"{day * DAY + EVENING * HOUR},{LOW}"]
    return "\n".join([*lines, f"{DAYS * DAY},0", ""])


def jobs(name: str, low: int, high: int) -> str:
    """Return jobs that come at random and keep so many GPUs busy in the mean, by night and by day."""
    draw = random.Random(name)  # noqa: S311 - no secret
    mean = (SHORTEST + LONGEST) / 2
    lines = [
        f"# jobs of one GPU, {SHORTEST} to {LONGEST} s, offering {low} GPUs by night and {high} by day, {DAYS} days",
        "time_seconds,duration_seconds,gpus",
    ]
    time = 0.0
    while True:
        # By thinning: arrivals at the highest rate, of which as many are kept as the hour offers.
        time += draw.expovariate(max(low, high) / mean)
        if time >= DAYS * DAY:
            return "\n".join([*lines, ""])
        is_day = MORNING * HOUR <= time % DAY < EVENING * HOUR
        length = draw.randint(SHORTEST, LONGEST)
        if draw.random() < (high if is_day else low) / max(low, high):
            lines.append(f"{time:.0f},{length},1")


def traces() -> dict[str, str]:
    """Return file name → text."""
    mean = (LOW + HIGH) // 2
    return {
        "day-night.csv": jobs("day-night", LOW, HIGH),
        "stages.csv": stages(),
        "steady.csv": jobs("steady", mean, mean),
    }


def main() -> int:
    """Write the files, or tell whether they are as written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for name, text in traces().items():
        path = FOLDER / name
        if options.write:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    for name in stale:
        print(f"{name} is not what tools/make_traces.py writes")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
