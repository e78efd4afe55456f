"""Metrics for node_exporter's textfile collector.

A timer asks for the quick checks every few minutes and writes the file anew; NCCL is measured now and then. So what is
known of NCCL is carried over from the file before, with the time at which it was measured, until it is measured again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from provision.matrix.load import Matrix
from provision.probe.clean import clean_line
from provision.probe.output import Unreadable, read_or
from provision.probe.parse.measurements import NcclRun
from provision.probe.snapshot import Snapshot
from provision.records import NOTHING, record
from provision.signals.expectation import Expectation
from provision.signals.signal import FAIL, PASS, SKIP
from provision.verify.engine import Verdict

_KERNEL_EVENTS = {"api-mismatch": "api_mismatch", "fallen-off": "fallen_off", "nccl-segfault": "nccl_segfault"}
_VALUES = {PASS: 1, FAIL: 0, SKIP: -1}
_UNKNOWN = -2

_HELP = {
    "provision_verify_status": "Answer of a check: 1 pass, 0 fail, -1 skip, -2 unknown.",
    "provision_verify_failures": "How many checks make the target fail.",
    "provision_verify_timestamp_seconds": "When the target was asked.",
    "provision_verify_figure": "A value a check measured.",
    "provision_gpu_expected": "How many GPUs were planned.",
    "provision_gpu_expected_driver_info": "The driver that was planned.",
    "provision_xid_events_total": "Xids in the kernel log since boot.",
    "provision_kernel_events_total": "Other driver events in the kernel log since boot.",
    "provision_nccl_status": "Last answer of a check of NCCL that was measured: 1 pass, 0 fail.",
    "provision_nccl_bus_bandwidth_bytes_per_second": "Bus bandwidth of the all-reduce at its largest size.",
    "provision_nccl_latency_seconds": "How long the all-reduce took at its smallest size.",
    "provision_nccl_ranks": "How many GPUs took part.",
    "provision_nccl_timestamp_seconds": "When it was measured.",
}
# Check → the figure that is its bus bandwidth, in GB/s.
_NCCL_FIGURES = {"perf.nccl.node": "allreduce_bus_gb_s", "perf.nccl.pair": "pair_bus_gb_s"}
_NCCL_NODE = "perf.nccl.node"
_NCCL_SAMPLE = re.compile(r'(provision_nccl_[a-z_]+)\{(target="(?:[^"\\]|\\.)*",check="[a-z0-9.]+")\} [-+.0-9e]+')
_BYTES_PER_GB = 1e9
_SECONDS_PER_US = 1e-6
_TYPES = {"provision_xid_events_total": "counter", "provision_kernel_events_total": "counter"}


@record
class HostFacts:
    """What the metrics say of a target beyond its checks."""

    collected: str = ""
    xids: Mapping[tuple[str, int, str], int] = NOTHING
    events: Mapping[str, int] = NOTHING
    is_log_read: bool = False
    nccl: NcclRun | None = None


def read_host_facts(host: Snapshot, matrix: Matrix) -> HostFacts:
    """Count the kernel's events of one target, and keep what nccl-tests said."""
    nccl = read_or(lambda: host.nccl_tests, None)
    try:
        log = host.kernel_log
    except Unreadable:
        return HostFacts(collected=host.collected, nccl=nccl)
    xids: dict[tuple[str, int, str], int] = {}
    for event in log.of("xid"):
        row = matrix.xids.get(event.code or 0)
        key = (event.pci or "", event.code or 0, row.severity if row else "unknown")
        xids[key] = xids.get(key, 0) + 1
    events = {name: len(log.of(kind)) for kind, name in _KERNEL_EVENTS.items()}
    return HostFacts(collected=host.collected, xids=xids, events=events, is_log_read=True, nccl=nccl)


def write_prometheus(
    verdict: Verdict,
    *,
    expected: Mapping[str, Expectation] = NOTHING,
    hosts: Mapping[str, HostFacts] = NOTHING,
    before: str = "",
) -> str:
    """Return the text; samples of one metric stand together, in the order of the verdict.

    Args:
        verdict: The answers.
        expected: Target → what was planned.
        hosts: Target → what else is known of it.
        before: The file that is written over. Its results of NCCL stay where this verdict has none.
    """
    samples: dict[str, list[str]] = {name: [] for name in _HELP}

    def add(name: str, value: float, **labels: object) -> None:
        samples[name].append(f"{name}{{{_labels(labels)}}} {value:.15g}")

    targets = list(dict.fromkeys(result.target for result in verdict.results))
    for result in verdict.results:
        status = result.outcome.status
        # The status is a label as well: in a large fleet the few that fail are looked up, not searched for.
        labels = {"target": result.target, "check": result.check, "severity": result.severity, "status": status}
        add("provision_verify_status", _VALUES.get(status, _UNKNOWN), **labels)
        for figure, value in result.outcome.figures.items():
            add("provision_verify_figure", value, target=result.target, check=result.check, figure=figure)
    failures = Counter(row.target for row in verdict.failures)
    for target in targets:
        add("provision_verify_failures", failures[target], target=target)
        plan = expected.get(target)
        if plan is not None and plan.gpus is not None:
            add("provision_gpu_expected", plan.gpus, target=target)
        if plan is not None and plan.driver is not None:
            add("provision_gpu_expected_driver_info", 1, target=target, version=plan.driver)
        known = hosts.get(target)
        if known is None:
            continue
        stamp = _epoch(known.collected)
        if stamp is not None:
            add("provision_verify_timestamp_seconds", stamp, target=target)
        for (pci, code, severity), count in sorted(known.xids.items()):
            add("provision_xid_events_total", count, target=target, pci=pci, xid=code, severity=severity)
        if known.is_log_read:
            for event, count in known.events.items():
                add("provision_kernel_events_total", count, target=target, event=event)
    for result in verdict.results:
        if result.check not in _NCCL_FIGURES or result.outcome.status not in (PASS, FAIL):
            continue
        labels = {"target": result.target, "check": result.check}
        known = hosts.get(result.target, HostFacts())
        add("provision_nccl_status", _VALUES[result.outcome.status], **labels)
        rate = result.outcome.figures.get(_NCCL_FIGURES[result.check])
        if rate is not None:
            add("provision_nccl_bus_bandwidth_bytes_per_second", rate * _BYTES_PER_GB, **labels)
        if result.check == _NCCL_NODE and known.nccl is not None:
            smallest = min(known.nccl.rows, key=lambda row: row.size_bytes)
            add("provision_nccl_latency_seconds", smallest.time_us * _SECONDS_PER_US, **labels)
            if known.nccl.ranks is not None:
                add("provision_nccl_ranks", known.nccl.ranks, **labels)
        stamp = _epoch(known.collected)
        if stamp is not None:
            add("provision_nccl_timestamp_seconds", stamp, **labels)
    _carry_over(samples, before)
    return "".join(_family(name, rows) for name, rows in samples.items() if rows)


def _carry_over(samples: dict[str, list[str]], before: str) -> None:
    """Add what an earlier file says of NCCL, of each target and check that is not in the samples."""
    matches = (_NCCL_SAMPLE.fullmatch(line) for rows in samples.values() for line in rows)
    measured = {match[2] for match in matches if match}
    for line in before.splitlines():
        match = _NCCL_SAMPLE.fullmatch(line)
        if match and match[1] in samples and match[2] not in measured:
            samples[match[1]].append(line)


def _family(name: str, rows: Iterable[str]) -> str:
    kind = _TYPES.get(name, "gauge")
    return f"# HELP {name} {_HELP[name]}\n# TYPE {name} {kind}\n" + "".join(f"{row}\n" for row in rows)


def _labels(labels: Mapping[str, object]) -> str:
    return ",".join(f'{name}="{_escape(str(value))}"' for name, value in labels.items())


def _escape(text: str) -> str:
    return clean_line(text).replace("\\", "\\\\").replace('"', '\\"')


def _epoch(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
