"""The traces of docs/traces/: loads of our own making, by the same numbers every time; ``make docs`` writes them.

``stages.csv`` is the load of an article's example: 4 GPUs for one half of the time, 16 for the other.
``day-night.csv`` offers as much in the mean, in jobs that come at random and differ in length, and ``steady.csv``
offers the same all the time.
"""

from __future__ import annotations

import random

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
