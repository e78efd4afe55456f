"""GPUs that should read each other's memory can."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.query import find_layout
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_WORDS = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it",
    "DR": "the driver's settings forbid it",
    "NS": "it is not supported",
}
_SHOWN = 6


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask for peer access where it is planned, or where the board is built for it."""
    wanted = expected.needs_p2p
    if wanted is None:
        gpus = host.smi.gpus
        wanted = bool(gpus) and all(find_layout(matrix, gpu.name) for gpu in gpus)
    if not wanted:
        return skipped("no plan asks the GPUs to read each other's memory")
    links = {pair: word for pair, word in host.p2p.links.items() if pair[0] != pair[1]}
    denied = {pair: word for pair, word in links.items() if word in _WORDS}
    if denied:
        pairs = [f"{a} to {b}: {word} ({_WORDS[word]})" for (a, b), word in denied.items()]
        more = f"; {len(pairs) - _SHOWN} more pairs" if len(pairs) > _SHOWN else ""
        return failed(
            "; ".join(pairs[:_SHOWN]) + more, "OK between every pair", subjects=dict.fromkeys(a for a, _ in denied)
        )
    odd = [(pair, word) for pair, word in links.items() if word != "OK"]
    if odd:
        (a, b), word = odd[0]
        return unknown(f"nvidia-smi says `{word}` of {a} and {b}")
    if not links:
        return unknown("nvidia-smi lists no pair of GPUs")
    count = len(host.smi.gpus)
    if len(links) < count * (count - 1):
        return unknown(f"nvidia-smi lists {len(links)} pairs of {count} GPUs")
    return passed(f"all {len(links)} pairs can")
