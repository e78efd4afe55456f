"""Hosts measured two by two: every host with several others, in rounds in which nobody has two partners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from provision.probe.collect import PARALLEL
from provision.probe.output import OK, Output, Unreadable
from provision.probe.parse.frameworks import parse_gpu_work
from provision.records import replace

if TYPE_CHECKING:
    from provision.probe.compose import CollectOptions
    from provision.probe.targets import Target

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


def collect_pairs(
    targets: Sequence[Target],
    options: CollectOptions,
    *,
    port: int,
    parallel: int = PARALLEL,
    seconds: float | None = None,
    connect_seconds: int = 10,
) -> dict[str, Output]:
    """Let hosts reduce two by two and return each host's best round.

    A host is judged by its best partner, so that a slow one is not held against those it was paired with.

    Args:
        targets: Hosts that are reached by ssh, under the name by which the others reach them too.
        options: As for every other collection; which probe runs and who leads is set here.
        port: Where the first of each pair listens.
        parallel: How many hosts at once; a pair counts two.
        seconds: Limit of one host, absent for what the probe may take.
        connect_seconds: Limit for a connection to come about.

    Returns:
        Target → what the probe brought; a host without a partner is missing.
    """
    import asyncio

    from provision.probe.fan_out import fan_out

    by_name = {target.name: target for target in targets}
    best: dict[str, Output] = {}
    limits = {"seconds": seconds, "connect_seconds": connect_seconds}
    for pairs in plan_rounds(list(by_name)):
        found: dict[str, Output] = {}

        async def measure(pair: tuple[str, str], found: dict[str, Output] = found) -> None:
            left, right = by_name[pair[0]], by_name[pair[1]]
            ranks = ((rank, target) for rank, target in enumerate((left, right)))
            asked = (_ask(target, left.host, rank, options, port, **limits) for rank, target in ranks)
            found.update(await asyncio.gather(*asked))

        asyncio.run(fan_out(pairs, measure, max(1, parallel // 2)))
        for name, output in found.items():
            if name not in best or _rate(output) > _rate(best[name]):
                best[name] = output
    return best


async def _ask(
    target: Target, master: str, rank: int, options: CollectOptions, port: int, **limits: Any
) -> tuple[str, Output]:
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
    found = await collect_targets_async((target,), own, parallel=1, **limits)
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
