"""Every NVLink that a GPU of this model has is up and runs at its speed."""

from __future__ import annotations

from collections.abc import Mapping

from provision.matrix.load import Matrix
from provision.matrix.query import find_layout
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import name_index

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare number and speed of the links with the board; without a known board, a GPU's links with each other."""
    del expected
    gpus = host.smi.gpus
    states = {state.gpu: state.links for state in host.nvlinks}
    if not gpus:
        return unknown("nvidia-smi lists no GPU")
    if not any(states.values()) and not any(find_layout(matrix, gpu.name) for gpu in gpus):
        return skipped("no GPU here has NVLink")
    faults: dict[str, str] = {}
    seen: set[tuple[int, float]] = set()
    for index, gpu in enumerate(gpus):
        if gpu.mig_current:
            continue
        links = states.get(index, {})
        active = [speed for speed in links.values() if speed is not None]
        layout = find_layout(matrix, gpu.name)
        fault = ""
        if layout is not None:
            # Tools round the speed in several ways, so whole GB/s are compared.
            slow = [speed for speed in active if int(speed) < int(layout.gb_s_per_link)]
            if len(active) < layout.links:
                fault = f"has {len(active)} of {layout.links} NVLinks{_list_inactive(links)}"
            elif slow:
                fault = f"has {len(slow)} NVLinks at {min(slow):g} of {layout.gb_s_per_link:g} GB/s"
        elif active and len(active) < len(links):
            fault = f"has {len(active)} of {len(links)} NVLinks{_list_inactive(links)}"
        if fault:
            faults[name_index(host, index)] = fault
        elif active:
            seen.add((len(active), min(active)))
    if faults:
        should = {
            f"{row.links} links of {row.gb_s_per_link:g} GB/s" for gpu in gpus if (row := find_layout(matrix, gpu.name))
        }
        return failed(
            "; ".join(f"{name} {fault}" for name, fault in faults.items()),
            " or ".join(sorted(should)) or "all links of a GPU active",
            subjects=faults,
        )
    if not seen:
        return skipped("no bridge joins the GPUs, or MIG divides them")
    return passed("each GPU has " + " or ".join(f"{count} links of {speed:g} GB/s" for count, speed in sorted(seen)))


def _list_inactive(links: Mapping[int, float | None]) -> str:
    down = [str(link) for link, speed in links.items() if speed is None]
    return f" (inactive: {', '.join(down)})" if down else ""
