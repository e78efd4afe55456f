"""What measurements say, for rules that explain slowness: an all-reduce below what such a machine reaches."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import smi_gpus
from provision.matrix.model import PerformanceFloor
from provision.matrix.query import NVLINK, PCIE, find_floor, find_layout
from provision.probe.links import topology_of
from provision.probe.output import Unreadable
from provision.probe.parse.measurements import NcclRun, parse_nccl_tests
from provision.records import record

_ALL_REDUCE = "all_reduce"
_MARKS = ("busbw", "nccl_version")
"""What stands over the table of nccl-tests, and in its document."""


@record
class SlowRun:
    """An all-reduce that is too slow.

    Attributes:
        bus_gb_s: Bus bandwidth at the largest size.
        size_bytes: That size.
        ranks: How many GPUs took part, where the run tells.
        topology: ``nvlink`` or ``pcie`` with its generation.
        floor: What it was judged by.
        is_own: Whether the target itself measured it, and not somebody who pasted it.
    """

    bus_gb_s: float
    size_bytes: int
    ranks: int | None = None
    topology: str
    floor: PerformanceFloor
    is_own: bool


def find_slow_run(case: Case) -> SlowRun | None:
    """Return the run of nccl-tests that stays below the floor of its GPUs; the target's own before a pasted one."""
    run = case.look(lambda host: host.nccl_tests)
    if run is not None and run.rows:
        if not case.faults("perf.nccl.node/slow"):
            return None
        names = [gpu.name for gpu in smi_gpus(case)]
        topology = case.look(lambda host: topology_of(host, case.matrix))
        return _judge(case, run, names or list(run.devices), topology, is_own=True)
    for _, text in case.texts:
        if not any(mark in text for mark in _MARKS):
            continue
        try:
            pasted = parse_nccl_tests(text)
        except Unreadable:
            continue
        if pasted.rows and (slow := _judge(case, pasted, list(pasted.devices), None, is_own=False)) is not None:
            return slow
    return None


def _judge(
    case: Case, run: NcclRun, names: list[str | None] | list[str], topology: str | None, *, is_own: bool
) -> SlowRun | None:
    # A floor is of one host, and between hosts the network decides.
    if not names or len(run.hosts) > 1 or (run.test is not None and not run.test.startswith(_ALL_REDUCE)):
        return None
    if topology is None:
        topology = NVLINK if all(find_layout(case.matrix, name) is not None for name in names) else PCIE
    largest = run.largest
    row = find_floor(
        case.matrix,
        "allreduce",
        gpu=names[0],
        topology=topology,
        gpus=run.ranks or len(names),
        message_bytes=largest.size_bytes,
    )
    if row is None or largest.bus_gb_s >= row.floor:
        return None
    return SlowRun(
        bus_gb_s=largest.bus_gb_s,
        size_bytes=largest.size_bytes,
        ranks=run.ranks,
        topology=topology,
        floor=row,
        is_own=is_own,
    )
