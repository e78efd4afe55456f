"""Hosts measured two by two: every host with several others, in rounds in which nobody has two partners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from provision.probe.output import OK, Output, Unreadable
from provision.probe.parse.frameworks import parse_gpu_work
from provision.records import replace

if TYPE_CHECKING:
    from provision.probe.compose import CollectOptions
    from provision.probe.targets import Target

__all__ = ["ROUNDS", "collect_pairs", "plan_rounds"]

ROUNDS = 2
"""Enough to tell a slow host from its partners: both of its pairs are slow, of theirs only one."""

_PROBE = "nccl-pair"
_FIGURE = "allreduce_bus_gb_s"


def plan_rounds(names: Sequence[str], rounds: int = ROUNDS) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return rounds of pairs; in each a name stands at most once, and no pair comes twice.

    Args:
        names: The hosts. An odd one out sits a round out, a different one each time.
        rounds: How many, at most as many as there are different ones.

    Source: the circle method for round-robin tournaments.
    """
    ring: list[str | None] = list(dict.fromkeys(names))
    if len(ring) % 2:
        ring.append(None)
    found = []
    for _ in range(min(rounds, len(ring) - 1)):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        found.append(tuple((left, right) for left, right in pairs if left is not None and right is not None))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return tuple(found)


def collect_pairs(targets: Sequence[Target], options: CollectOptions, *, port: int) -> dict[str, Output]:
    """Let hosts reduce two by two and return each host's best round.

    A host is judged by its best partner, so that a slow one is not held against those it was paired with.

    Args:
        targets: Hosts that are reached by ssh, under the name by which the others reach them too.
        options: As for every other collection; which probe runs and who leads is set here.
        port: Where the first of each pair listens.

    Returns:
        Target → what the probe brought; a host without a partner is missing.
    """
    import asyncio

    by_name = {target.name: target for target in targets}
    best: dict[str, Output] = {}
    for pairs in plan_rounds(list(by_name)):
        found = asyncio.run(_run_round([(by_name[left], by_name[right]) for left, right in pairs], options, port))
        for name, output in found.items():
            if name not in best or _rate(output) > _rate(best[name]):
                best[name] = output
    return best


async def _run_round(pairs: Sequence[tuple[Target, Target]], options: CollectOptions, port: int) -> dict[str, Output]:
    import asyncio

    answers = await asyncio.gather(
        *(_ask(target, pair[0].host, rank, options, port) for pair in pairs for rank, target in enumerate(pair))
    )
    return dict(answers)


async def _ask(target: Target, master: str, rank: int, options: CollectOptions, port: int) -> tuple[str, Output]:
    from provision.probe.collect import collect_targets_async
    from provision.probe.compose import new_nonce

    own = replace(
        options,
        nonce=new_nonce(),
        probes=(_PROBE,),
        rank=rank,
        world_size=2,
        master=master,
        master_port=port,
    )
    found = await collect_targets_async((target,), own, parallel=1)
    if target.name in found.snapshots:
        return target.name, found.snapshots[target.name].output(_PROBE)
    reason = found.unreachable.get(target.name, "nothing came back")
    return target.name, Output(probe=_PROBE, status="failed", error=reason)


def _rate(output: Output) -> float:
    if output.status != OK:
        return -1.0
    try:
        return parse_gpu_work(output.text).figures.get(_FIGURE, 0.0)
    except Unreadable:
        return -1.0
