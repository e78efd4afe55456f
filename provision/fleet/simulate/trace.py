"""A recorded load: jobs that arrived, or GPUs that were busy, out of CSV or Slurm's accounting."""

from __future__ import annotations

import csv
import math
from itertools import pairwise

from provision.errors import UsageError, shown
from provision.fleet.sacct import SACCT, is_sacct, read_sacct
from provision.records import record

JOB_COLUMNS = ("time_seconds", "duration_seconds", "gpus")
SERIES_COLUMNS = ("time_seconds", "gpus_busy")

_ROWS_MAX = 200_000
_GPUS_MAX = 100_000
_SECONDS_MAX = 366 * 86_400.0
_SEPARATORS = (",", ";", "\t")


@record
class Job:
    """Work that arrives. Times in seconds from the start of the trace.

    Attributes:
        line: Where it stands in the file.
        arrival: When it is handed in.
        duration: How long it runs once it runs, without interruptions.
        gpus: How many it needs at the same time.
    """

    line: int
    arrival: float
    duration: float
    gpus: int


@record
class Trace:
    """Jobs in order of arrival; ``end`` is when the record ends, in seconds from its start."""

    jobs: tuple[Job, ...]
    end: float

    @property
    def gpu_seconds(self) -> float:
        """All work, in GPU seconds."""
        return math.fsum(job.duration * job.gpus for job in self.jobs)


def read_trace(text: str, name: str) -> Trace:
    """Return what a file records: CSV, or what ``sacct --parsable2`` printed.

    Its first line names the columns: ``time_seconds,duration_seconds,gpus``, a line for each job; or
    ``time_seconds,gpus_busy``, a line for each time from which so many GPUs were busy until the next line, the last one
    ending the record. Lines that begin with ``#`` and empty ones say nothing. Times are seconds from any beginning,
    which the first line sets, and do not fall. Columns are parted by commas, semicolons or tabs, decimals by a point.
    Of Slurm's jobs those count that were given a GPU and ran, from when they were submitted.

    Raises:
        UsageError: A line does not say that; it is named.
    """
    if is_sacct(text):
        return _slurm(name, text)
    rows = [
        (number, line)
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not rows:
        raise UsageError(f"{name} records nothing", hints=(_form(),))
    if len(rows) > _ROWS_MAX:
        raise UsageError(f"{name} has {len(rows)} lines", hints=(f"cut it into parts of up to {_ROWS_MAX} lines",))
    separator = next((mark for mark in _SEPARATORS if mark in rows[0][1]), ",")
    heading = tuple(word.strip() for word in rows[0][1].split(separator))
    if heading not in (JOB_COLUMNS, SERIES_COLUMNS):
        raise UsageError(f"{name}:{rows[0][0]}: `{shown(rows[0][1], 60)}` does not name the columns", hints=(_form(),))
    values = [(number, _read_row(name, number, line, heading, separator)) for number, line in rows[1:]]
    if not values:
        raise UsageError(f"{name} names its columns and records nothing", hints=(_form(),))
    before = values[0][1][0]
    for number, row in values:
        if row[0] < before:
            raise UsageError(
                f"{name}:{number}: {row[0]:g} s comes after {before:g} s", hints=("sort the lines by their time",)
            )
        before = row[0]
    return _jobs(name, values) if heading == JOB_COLUMNS else _series(name, values)


def _jobs(name: str, values: list[tuple[int, list[float]]]) -> Trace:
    start = values[0][1][0]
    jobs = []
    for number, (time, duration, gpus) in values:
        if duration <= 0:
            raise UsageError(f"{name}:{number}: a job of {duration:g} s is none")
        if gpus < 1 or gpus != int(gpus):
            raise UsageError(f"{name}:{number}: {gpus:g} is not a number of GPUs", hints=("write 1 or more",))
        jobs.append(Job(line=number, arrival=time - start, duration=duration, gpus=int(gpus)))
    return Trace(jobs=tuple(jobs), end=jobs[-1].arrival)


def _slurm(name: str, text: str) -> Trace:
    found = sorted(
        ((job.submit, job) for job in read_sacct(text, name) if job.submit is not None and job.gpus and job.elapsed),
        key=lambda pair: (pair[0], pair[1].line),
    )
    if not found:
        raise UsageError(
            f"{name} has no job that was given a GPU, ran, and says when it was submitted",
            hints=(f"write it with `{SACCT}`",),
        )
    if len(found) > _ROWS_MAX:
        raise UsageError(f"{name} has {len(found)} jobs", hints=(f"cut it into parts of up to {_ROWS_MAX} jobs",))
    start = found[0][0]
    jobs = [Job(line=job.line, arrival=time - start, duration=job.elapsed, gpus=job.gpus) for time, job in found]
    return Trace(jobs=tuple(jobs), end=jobs[-1].arrival)


def _series(name: str, values: list[tuple[int, list[float]]]) -> Trace:
    """Every stretch becomes jobs of one GPU that last as long as it does; parts of a GPU are carried on."""
    start = values[0][1][0]
    jobs: list[Job] = []
    owed = 0.0
    for (number, (time, busy)), (_, (until, _)) in pairwise(values):
        length = until - time
        if length == 0:
            raise UsageError(f"{name}:{number}: two lines are of {time:g} s", hints=("keep one of them",))
        owed += busy * length
        count = round(owed / length)
        owed -= count * length
        jobs += [Job(line=number, arrival=time - start, duration=length, gpus=1) for _ in range(max(count, 0))]
        if len(jobs) > _ROWS_MAX:
            raise UsageError(
                f"{name}:{number}: the record is of more than {_ROWS_MAX} jobs", hints=("take longer stretches",)
            )
    if not jobs:
        raise UsageError(f"{name} records no busy GPU", hints=("a stretch lasts until the next line",))
    return Trace(jobs=tuple(jobs), end=values[-1][1][0] - start)


def _read_row(name: str, number: int, line: str, heading: tuple[str, ...], separator: str) -> list[float]:
    words = next(csv.reader([line], delimiter=separator))
    if len(words) != len(heading):
        raise UsageError(
            f"{name}:{number}: {len(words)} values for {len(heading)} columns",
            hints=(f"write {separator.join(heading)}",),
        )
    found = []
    for word, column in zip(words, heading, strict=True):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        most = _GPUS_MAX if column.startswith("gpus") else math.inf if column == "time_seconds" else _SECONDS_MAX
        if not (math.isfinite(value) and 0 <= value <= most):
            raise UsageError(
                f"{name}:{number}: `{shown(word, 60)}` is not a value for `{column}`",
                because=("a point parts decimals",) if "," in word else (),
                hints=(_form(),),
            )
        found.append(value)
    return found


def _form() -> str:
    return (
        f"the first line is `{','.join(JOB_COLUMNS)}` or `{','.join(SERIES_COLUMNS)}`, and numbers follow; or the file "
        "is what `sacct -P` printed"
    )
