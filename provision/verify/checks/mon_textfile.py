"""The metrics that verify leaves for node_exporter are fresh."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import ABSENT
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the age of the file with what its timer makes likely."""
    del expected
    most_seconds = matrix.limit("mon.textfile-age")
    should = f"a `provision.prom` younger than {most_seconds / 60:g} minutes"
    if host.output("textfile").status == ABSENT:
        return failed("there is no `provision.prom` in node_exporter's folder", should)
    age_seconds = host.textfile_age_seconds
    if age_seconds >= most_seconds:
        return failed(f"`provision.prom` is {age_seconds / 60:.0f} minutes old", should)
    return passed(f"`provision.prom` is {age_seconds:.0f} seconds old")
