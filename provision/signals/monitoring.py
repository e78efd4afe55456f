"""What is told of the host to others."""

from __future__ import annotations

import math

from provision.matrix.load import Matrix
from provision.probe.output import ABSENT, FAILED, OK
from provision.probe.parse.measurements import Metric, parse_prometheus_vector
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.signal import Signal, failed, passed, skipped, unknown
from provision.signals.work import count_gpus, counted

_TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
_BLANKS = ("dcgm.blank-int32", "dcgm.blank-int64", "dcgm.blank-fp64")
_BLANK_KINDS = 4
"""Blank, not found, not supported, not permitted: consecutive numbers from the blank on."""


def mon_exporter(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
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
    seen = {_gpu_of_metric(metric) for metric in temperatures}
    count = count_gpus(host, expected)
    if not seen:
        return failed(f"the exporter has no {_TEMPERATURE}", f"{_TEMPERATURE} of {count or 'every'} GPUs")
    if count is None:
        return unknown(f"the exporter tells {len(seen)} GPUs, and how many there are is not known")
    if len(seen) < count:
        return failed(f"the exporter tells {len(seen)} of {count} GPUs", f"{count} GPUs")
    return passed(f"the exporter tells {counted(len(seen), 'GPU')}")


def _gpu_of_metric(metric: Metric) -> tuple[str, ...]:
    return tuple(metric.labels.get(label, "") for label in ("UUID", "gpu", "device"))


def _is_blank(value: float, start: float) -> bool:
    return start <= value < start + _BLANK_KINDS or value == start


def mon_scrape(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the server's answer to a query of ``up`` for this host, which whoever collected may have asked."""
    if expected.prometheus is None:
        return skipped("no Prometheus server is named")
    targets = parse_prometheus_vector(host.text("prometheus"))
    if not targets:
        return failed(f"{expected.prometheus} knows no target of this host", "`up` is 1")
    down = [metric for metric in targets if metric.value != 1]
    if down:
        names = [f"{metric.labels.get('job', '?')} ({metric.labels.get('instance', '?')})" for metric in down]
        return failed(f"{expected.prometheus} cannot scrape {', '.join(names)}", "`up` is 1", subjects=names)
    return passed(f"{len(targets)} targets are up")


def mon_textfile(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the age of the file with what its timer makes likely."""
    most_seconds = matrix.limit("mon.textfile-age")
    should = f"a `provision.prom` younger than {most_seconds / 60:g} minutes"
    if host.output("textfile").status == ABSENT:
        return failed("there is no `provision.prom` in node_exporter's folder", should)
    age_seconds = host.textfile_age_seconds
    if age_seconds >= most_seconds:
        return failed(f"`provision.prom` is {age_seconds / 60:.0f} minutes old", should)
    return passed(f"`provision.prom` is {age_seconds:.0f} seconds old")
