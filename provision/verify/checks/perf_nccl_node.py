"""An all-reduce over the GPUs of the host is right, and as fast as their links allow."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.verify.performance import describe_slow_links, find_floor, topology_of
from provision.verify.work import count_gpus

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge correctness first, then bus bandwidth at the largest size; the average mixes sizes and says little."""
    run = host.nccl_tests
    largest = run.largest
    figures = {"allreduce_bus_gb_s": largest.bus_gb_s}
    wrong = sum(row.wrong or 0 for row in (*run.rows, *run.in_place)) or run.out_of_bounds or 0
    if wrong:
        return failed(
            f"the all-reduce gave {wrong} wrong values",
            "no wrong value",
            remedy="Take the host out of use: a GPU, a link or an address translation corrupts data.",
            figures=figures,
        )
    size = _size(largest.size_bytes)
    if run.out_of_bounds is None and all(row.wrong is None for row in run.rows):
        return unknown(f"nccl-tests did not check the values of its {largest.bus_gb_s:.1f} GB/s at {size}")
    count = run.ranks or count_gpus(host, expected)
    planned = count_gpus(host, expected)
    if run.ranks is not None and planned is not None and run.ranks < planned:
        return failed(f"{run.ranks} of {planned} GPUs took part", f"{planned} GPUs", figures=figures)
    gpu = next((gpu.name for gpu in host.smi.gpus if gpu.name), None)
    topology = topology_of(host, matrix)
    row = find_floor(matrix, "allreduce", gpu=gpu, topology=topology, gpus=count)
    said = f"{largest.bus_gb_s:.1f} GB/s bus bandwidth at {size}"
    if row is None:
        return unknown(
            f"{said}, and no floor is known for {count or 'this many'} {gpu} over {topology}",
            remedy="Add a `[[floor]]` to `performance.toml` with what a sound host of this kind reaches.",
        )
    if largest.bus_gb_s < row.floor:
        links = describe_slow_links(host, matrix)
        return failed(
            f"{said}{f': {links}' if links else ', and no single link stands out'}",
            f"{row.floor:g} {row.unit} or more over {topology}",
            figures=figures,
        )
    return passed(f"{said}, {run.ranks or 'all'} GPUs, no wrong value", figures=figures)


def _size(size_bytes: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:g} {unit}"
    return f"{size_bytes} B"
