"""What measurements are judged by: the row of ``performance.toml`` that fits a machine, and the link that is slow."""

from __future__ import annotations

from provision.matrix.query import NVLINK, PCIE, find_floor, find_layout, gpu_ids
from provision.probe.links import describe_slow_links, pair_bandwidths, slowest_pairs, topology_of

__all__ = [
    "NVLINK",
    "PCIE",
    "describe_slow_links",
    "find_floor",
    "find_layout",
    "gpu_ids",
    "pair_bandwidths",
    "slowest_pairs",
    "topology_of",
]
