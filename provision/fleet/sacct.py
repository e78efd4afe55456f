"""Jobs of Slurm's accounting, as ``sacct --parsable2`` prints them.

Source: Slurm documentation, "sacct" (fields, ``--parsable2``) and "Trackable RESources" (``gres/gpu``).
"""

from __future__ import annotations

import math
import re
from datetime import datetime

from provision.errors import UsageError
from provision.records import record

SACCT = "sacct -a -X -P -o JobID,JobName,User,Account,Partition,Submit,Start,End,ElapsedRaw,AllocTRES"
"""The command whose output has every column that is read here."""

_NEEDED = ("ElapsedRaw", "AllocTRES")
_SHORT = ("Submit", *_NEEDED)
_ROWS_MAX = 2_000_000
_NO_TIMES = ("", "Unknown", "None", "N/A")


@record
class SacctJob:
    """One job.

    Attributes:
        line: Where it stands in the file.
        gpus: GPUs that it was given; 0 for a job without.
        elapsed: Seconds it has run.
        submit, start, end: Seconds since the epoch, by the clock of whoever ran ``sacct``; ``None`` if unknown.
        labels: ``job``, ``user``, ``account`` and ``partition``, those that the file names.
    """

    line: int
    gpus: int
    elapsed: float
    submit: float | None
    start: float | None
    end: float | None
    labels: dict[str, str]


def is_sacct(text: str) -> bool:
    """Tell whether a text is ``sacct --parsable2``: its first line has columns parted by ``|``."""
    return "|" in next((line for line in text.removeprefix("\ufeff").splitlines() if line.strip()), "")


def read_sacct(text: str, name: str) -> tuple[SacctJob, ...]:
    """Return the jobs of a file, in its order; the steps of jobs are no jobs and are left out.

    The first line names the columns, at least ElapsedRaw and AllocTRES. Where three columns have no names, as ``-n``
    leaves them out, they are Submit, ElapsedRaw and AllocTRES.

    Raises:
        UsageError: A line does not say that; it is named.
    """
    lines = [(number, line) for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1) if line.strip()]
    if len(lines) > _ROWS_MAX:
        raise UsageError(f"{name} has {len(lines)} lines", hints=(f"cut it into parts of up to {_ROWS_MAX} lines",))
    heading = tuple(lines[0][1].split("|")) if lines else ()
    if len(heading) == len(_SHORT) and not {*_SHORT} & {*heading}:
        heading = _SHORT
    else:
        lines = lines[1:]
    lacking = [column for column in _NEEDED if column not in heading]
    if lacking:
        raise UsageError(f"{name} has no column {' and '.join(lacking)}", hints=(f"write it with `{SACCT}`",))
    jobs = [job for number, line in lines if (job := _read(name, number, line, heading)) is not None]
    if not jobs:
        raise UsageError(f"{name} has no job", hints=(f"write it with `{SACCT}`",))
    return tuple(jobs)


def _read(name: str, number: int, line: str, heading: tuple[str, ...]) -> SacctJob | None:
    words = line.split("|")
    if len(words) != len(heading):
        raise UsageError(
            f"{name}:{number}: {len(words)} values for the {len(heading)} columns {'|'.join(heading)}",
            hints=(f"write it with `{SACCT}`",),
        )
    row = dict(zip(heading, words, strict=True))
    if "." in row.get("JobID", ""):
        return None
    if not (row["ElapsedRaw"].isascii() and row["ElapsedRaw"].isdigit()):
        raise UsageError(f"{name}:{number}: ElapsedRaw `{row['ElapsedRaw'][:40]}` is not a number of seconds")
    labels = {key: row[column] for key, column in _LABELS.items() if row.get(column)}
    if "job" in labels and row.get("JobName"):
        labels["job"] = f"{labels['job']} {row['JobName']}"
    times = {column: _read_time(name, number, row.get(column, "")) for column in ("Submit", "Start", "End")}
    return SacctJob(
        line=number,
        gpus=_count_gpus(row["AllocTRES"]),
        elapsed=float(row["ElapsedRaw"]),
        submit=times["Submit"],
        start=times["Start"],
        end=times["End"],
        labels=labels,
    )


_LABELS = {"job": "JobID", "user": "User", "account": "Account", "partition": "Partition"}


def _count_gpus(tres: str) -> int:
    """Return how many GPUs a list of trackable resources has; models (``gres/gpu:a100``) only where no total stands."""
    found = dict(re.findall(r"(?:^|,)gres/gpu(:[^=,]+)?=([0-9]+)", tres))
    if "" in found:
        return int(found[""])
    return sum(map(int, found.values()))


def _read_time(name: str, number: int, text: str) -> float | None:
    if text in _NO_TIMES:
        return None
    try:
        seconds = float(text) if text.isdigit() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise UsageError(
            f"{name}:{number}: `{text[:40]}` is not a time",
            hints=("leave SLURM_TIME_FORMAT as it is: 2026-11-20T08:15:00",),
        )
    return seconds
