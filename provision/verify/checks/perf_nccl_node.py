"""An all-reduce over the GPUs of the host is right, and as fast as their links allow."""

from __future__ import annotations

import re
from functools import partial

from provision.matrix.load import Matrix
from provision.matrix.query import find_floor
from provision.probe.links import describe_slow_links, topology_of
from provision.probe.output import FAILED, HUNG, NOT_RUN, Output, Unreadable
from provision.probe.parse.measurements import NcclRun, parse_nccl_tests
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import count_gpus, has_mig

__all__ = ["check"]

_COMPLAINT = re.compile(r"Test (?:timeout|failure|NCCL failure|CUDA failure)")


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge correctness first, then bus bandwidth at the largest size; the average mixes sizes and says little."""
    if has_mig(host):
        return skipped("MIG divides the GPUs, and their parts do not reduce together")
    try:
        run = host.nccl_tests
    except Unreadable as error:
        return _explain(host, matrix, error)
    largest = run.largest
    figures = {"allreduce_bus_gb_s": largest.bus_gb_s}
    wrong = _count_wrong(run)
    if wrong:
        return _fail_wrong(wrong, figures)
    size = _size(largest.size_bytes)
    if run.out_of_bounds is None and all(row.wrong is None for row in run.rows):
        return unknown(f"nccl-tests did not check the values of its {largest.bus_gb_s:.1f} GB/s at {size}")
    count = run.ranks or count_gpus(host, expected)
    planned = count_gpus(host, expected)
    if run.ranks is not None and planned is not None and run.ranks < planned:
        return failed(f"{run.ranks} of {planned} GPUs took part", f"{planned} GPUs", figures=figures)
    gpu = next((gpu.name for gpu in host.smi.gpus if gpu.name), None)
    topology = topology_of(host, matrix)
    said = f"{largest.bus_gb_s:.1f} GB/s bus bandwidth at {size}"
    find = partial(find_floor, matrix, "allreduce", gpu=gpu, topology=topology, gpus=count)
    row = find(message_bytes=largest.size_bytes)
    # The floor of a larger message, which a smaller one may reach and need not.
    above = find() if row is None else None
    floor = row or above
    if floor is None:
        return unknown(
            f"{said}, and no floor is known for {count or 'this many'} {gpu} over {topology}",
            remedy="Add a `[[floor]]` to `performance.toml` with what a sound host of this kind reaches.",
        )
    if largest.bus_gb_s < floor.floor:
        links = describe_slow_links(host, matrix)
        if above is not None:
            least = f"the floor of {above.floor:g} {above.unit} holds from {_size(above.message_bytes_min or 0)} on"
            return unknown(
                f"{said}{f': {links}' if links else ''}; {least}",
                remedy="Run it again when nothing else holds the memory of the GPUs, which decides on the sizes.",
            )
        return failed(
            f"{said}{f': {links}' if links else ', and no single link stands out'}",
            f"{floor.floor:g} {floor.unit} or more over {topology}",
            figures=figures,
        )
    return passed(f"{said}, {run.ranks or 'all'} GPUs, no wrong value", figures=figures)


def _count_wrong(run: NcclRun) -> int:
    return sum(row.wrong or 0 for row in (*run.rows, *run.in_place)) or run.out_of_bounds or 0


def _fail_wrong(wrong: int, figures: dict[str, float]) -> Outcome:
    return failed(
        f"the all-reduce gave {wrong} wrong values",
        "no wrong value",
        remedy="Take the host out of use: a GPU, a link or an address translation corrupts data.",
        figures=figures,
    )


def _explain(host: Snapshot, matrix: Matrix, error: Unreadable) -> Outcome:
    """Say what is known of a run that did not come to its end: what it said of itself, and how far it came."""
    output = host.output("nccl-tests")
    said = next((line.strip() for line in output.error.splitlines() if line.strip()), "")
    if error.status == NOT_RUN and said:
        return unknown(said)
    if error.status not in (HUNG, FAILED):
        raise error
    complaint = next((line.strip() for line in output.text.splitlines() if _COMPLAINT.search(line)), "")
    run = _read_begun(output)
    if run is not None and (wrong := _count_wrong(run)):
        return _fail_wrong(wrong, {"allreduce_bus_gb_s": run.largest.bus_gb_s})
    why = complaint or (said if error.status == HUNG and run is None else "") or error.reason
    reached = ""
    if run is not None:
        reached = f"; the last it told was {run.largest.bus_gb_s:.1f} GB/s at {_size(run.largest.size_bytes)}"
    links = describe_slow_links(host, matrix)
    return unknown(f"{why}{reached}{f': {links}' if links else ''}")


def _read_begun(output: Output) -> NcclRun | None:
    """Return the results before the place where they break off, or ``None`` where there is none."""
    whole = output.text[: output.text.rfind("\n") + 1]
    rows = "".join(line for line in whole.splitlines(keepends=True) if not _COMPLAINT.search(line))
    try:
        return parse_nccl_tests(rows)
    except Unreadable:
        return None


def _size(size_bytes: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:g} {unit}"
    return f"{size_bytes} B"
