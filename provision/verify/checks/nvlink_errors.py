"""The NVLinks have had no replay and no recovery since the driver was loaded."""

from __future__ import annotations

from collections.abc import Sequence

from provision.matrix.load import Matrix
from provision.matrix.query import find_layout
from provision.probe.parse.nvlink import NvlinkCounters
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import name_index

__all__ = ["check"]

_COUNTERS = ("replay", "recovery")
_TRAFFIC = ("torch-nccl", "nvbandwidth", "nccl-tests")
"""What sends over NVLink; without any of it a second reading says nothing."""
_LOOK_AGAIN = "The counters run since the driver was loaded: `--level standard` tells whether they still rise."


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look at the counters that stay at zero on a sound link; single CRC errors are repaired by design."""
    del expected
    states = [state for state in host.nvlink_errors if state.links]
    before = _count(states) if host.has("nvlink-errors-later") and any(map(host.has, _TRAFFIC)) else {}
    if before:
        states = [state for state in host.nvlink_errors_later if state.links]
        after = _count(states)
        if any(after.get(place, -1) < count for place, count in before.items()):
            return unknown("the counters were reset, or links went missing, while the GPUs worked")
    gpus = host.smi.gpus
    if not gpus:
        return unknown("nvidia-smi lists no GPU")
    built = {index for index, gpu in enumerate(gpus) if find_layout(matrix, gpu.name) and not gpu.mig_current}
    if not states and not built:
        return skipped("no GPU here has NVLink")
    least = {counter: matrix.limit(f"nvlink.{counter}-errors") for counter in _COUNTERS}
    faults = [
        (name_index(host, state.gpu), f"link {link}: {count} {counter} errors")
        for state in states
        for link, counters in state.links.items()
        for counter in _COUNTERS
        if (count := counters.get(counter, 0) - before.get((state.gpu, link, counter), 0)) >= least[counter]
    ]
    if faults:
        return failed(
            "; ".join(f"{name} {fault}" for name, fault in faults),
            "no replay and no recovery while the GPUs worked" if before else "no replay and no recovery",
            subjects=dict.fromkeys(name for name, _ in faults),
            remedy="" if before else _LOOK_AGAIN,
        )
    if silent := sorted(built - {state.gpu for state in states}):
        names = ", ".join(name_index(host, index) for index in silent)
        return unknown(f"nvidia-smi counts no errors of the NVLinks of {names}")
    if not any(counter in counters for state in states for counters in state.links.values() for counter in _COUNTERS):
        return skipped("this driver counts neither replays nor recoveries")
    if old := sum(before.values()):
        return passed(f"{old} replays and recoveries since the driver was loaded, none more while the GPUs worked")
    return passed(f"no replay and no recovery on the links of {len(states)} GPUs")


def _count(states: Sequence[NvlinkCounters]) -> dict[tuple[int, int, str], int]:
    return {
        (state.gpu, link, counter): counters.get(counter, 0)
        for state in states
        for link, counters in state.links.items()
        for counter in _COUNTERS
    }
