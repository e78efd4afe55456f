"""Copies between GPUs are as fast as their links allow."""

from __future__ import annotations

from collections.abc import Mapping

from provision.matrix.load import Matrix
from provision.matrix.query import NVLINK, find_floor
from provision.probe.links import find_inactive_links, find_narrow_slots, pair_bandwidths, slowest_pairs, topology_of
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped
from provision.verify.work import has_mig, name_index

__all__ = ["check"]

_SHOWN = 4


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge the slowest pair by the floor of its GPU, and every pair by the median of all."""
    if has_mig(host):
        return skipped("MIG divides the GPUs, and their parts do not copy to each other")
    try:
        pairs = pair_bandwidths(host)
    except Unreadable:
        if _has_no_way(host):
            return skipped("these GPUs cannot copy to each other without the host")
        if not expected.needs_p2p and topology_of(host, matrix) != NVLINK:
            return skipped("no plan asks these GPUs to copy to each other, and nothing measured it")
        raise
    gpu = next((gpu.name for gpu in host.smi.gpus if gpu.name), None)
    topology = topology_of(host, matrix)
    (a, b), least = min(pairs.items(), key=lambda item: (item[1], item[0]))
    figures = {"p2p_gb_s": least}
    row = find_floor(matrix, "p2p", gpu=gpu, topology=topology)
    slow = dict(slowest_pairs(pairs, matrix.limit("performance.slow-pair")))
    if row is not None:
        slow |= {pair: value for pair, value in pairs.items() if value < row.floor}
    if slow:
        said, subjects = _describe(host, slow)
        links = ", ".join([*find_inactive_links(host, matrix), *find_narrow_slots(host)])
        should = f"{row.floor:g} GB/s or more" if row is not None else "every pair as fast as the others"
        return failed(f"{said}{f': {links}' if links else ''}", should, subjects=subjects, figures=figures)
    if row is None:
        return skipped(f"no floor is known for {gpu} over {topology}; the slowest pair copies {least:.1f} GB/s")
    return passed(f"the slowest pair, GPU {a} to GPU {b}, copies {least:.1f} GB/s", figures=figures)


def _describe(host: Snapshot, slow: Mapping[tuple[int, int], float]) -> tuple[str, list[str]]:
    """Return which pairs are slow, or which GPU where it is the same one in all of them, in words and as subjects."""
    worst = sorted(slow.items(), key=lambda item: (item[1], item[0]))
    shared = frozenset.intersection(*(frozenset(pair) for pair in slow))
    others = frozenset().union(*slow) - shared
    if len(shared) == 1 and len(others) > 1:
        name = name_index(host, min(shared))
        least, most = (f"{value:.1f}" for value in (worst[0][1], worst[-1][1]))
        rate = f"{least} GB/s" if least == most else f"{least} to {most} GB/s"
        return f"{name} copies {rate} from or to {len(others)} other GPUs", [name]
    said = "; ".join(f"GPU {x} to GPU {y} copies {value:.1f} GB/s" for (x, y), value in worst[:_SHOWN])
    more = f"; {len(worst) - _SHOWN} more pairs are slow" if len(worst) > _SHOWN else ""
    return said + more, [f"GPU {x} to GPU {y}" for (x, y), _ in worst]


def _has_no_way(host: Snapshot) -> bool:
    try:
        words = {word for (a, b), word in host.p2p.links.items() if a != b}
    except Unreadable:
        return False
    return bool(words) and not words & {"OK", "U"}
