"""The exporter tells the temperature of every GPU, and real values only."""

from __future__ import annotations

import math

from provision.matrix.load import Matrix
from provision.probe.output import FAILED, OK
from provision.probe.parse.measurements import Metric
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.verify.work import count_gpus, counted

__all__ = ["check"]

_TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
_BLANKS = ("dcgm.blank-int32", "dcgm.blank-int64", "dcgm.blank-fp64")
_BLANK_KINDS = 4
"""Blank, not found, not supported, not permitted: consecutive numbers from the blank on."""


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count GPUs, then look for the numbers that DCGM puts where it has no value."""
    output = host.output("exporter")
    if output.status == FAILED:
        said = next(
            (line.strip() for line in output.error.splitlines() if line.strip()), f"it ended with {output.code}"
        )
        return failed(f"the exporter does not answer: {said[:300]}", "metrics of DCGM")
    if output.status == OK and not output.text.strip():
        return failed("the exporter answers without any metric of DCGM", "metrics of DCGM")
    metrics = host.exporter
    blanks = [matrix.limit(blank) for blank in _BLANKS]
    blank = next((metric for metric in metrics if any(_is_blank(metric.value, start) for start in blanks)), None)
    if blank is not None:
        gpu = blank.labels.get("gpu", "?")
        return failed(
            f"{blank.name} of GPU {gpu} is {blank.value:.0f}, which stands for no value",
            "values",
            subjects=[f"GPU {gpu}"],
        )
    temperatures = [metric for metric in metrics if metric.name == _TEMPERATURE and math.isfinite(metric.value)]
    seen = {_identity(metric) for metric in temperatures}
    count = count_gpus(host, expected)
    if not seen:
        return failed(f"the exporter has no {_TEMPERATURE}", f"{_TEMPERATURE} of {count or 'every'} GPUs")
    if count is None:
        return unknown(f"the exporter tells {len(seen)} GPUs, and how many there are is not known")
    if len(seen) < count:
        return failed(f"the exporter tells {len(seen)} of {count} GPUs", f"{count} GPUs")
    return passed(f"the exporter tells {counted(len(seen), 'GPU')}")


def _identity(metric: Metric) -> tuple[str, ...]:
    return tuple(metric.labels.get(label, "") for label in ("UUID", "gpu", "device"))


def _is_blank(value: float, start: float) -> bool:
    return start <= value < start + _BLANK_KINDS or value == start
