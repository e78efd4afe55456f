"""The Prometheus server scrapes the exporters of the host."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.measurements import parse_prometheus_vector
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge the server's answer to a query of ``up`` for this host, which whoever collected may have asked."""
    del matrix
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
