"""How many replicas serve a load, and by what they are scaled."""

from __future__ import annotations

import math

from provision.planner.speed import Speed
from provision.records import record


@record
class Service:
    """Replicas for a load.

    Attributes:
        replicas: Enough for the peak at the forecast's middle; at its slow end ``replicas_slow`` are.
        nodes: Machines they take. ``minimum`` is enough for the usual load.
        requests_per_second: The load at its peak; ``per_replica`` what one of them takes.
    """

    replicas: int
    replicas_slow: int
    minimum: int
    nodes: int
    requests_per_second: float
    per_replica: float


def size_service(speed: Speed, requests_per_second: float, *, replicas_per_node: int, peak: float) -> Service:
    """Return how many replicas a load takes.

    Args:
        speed: Requests a second of one replica, a random load's peaks left room for.
        requests_per_second: The usual load.
        replicas_per_node: Copies of the model in one machine.
        peak: The load at its peak over the usual one, at least 1.
    """
    replicas = max(math.ceil(requests_per_second * peak / speed.median), 1)
    return Service(
        replicas=replicas,
        replicas_slow=max(math.ceil(requests_per_second * peak / speed.low), 1),
        minimum=max(math.ceil(requests_per_second / speed.median), 1),
        nodes=math.ceil(replicas / replicas_per_node),
        requests_per_second=requests_per_second * peak,
        per_replica=speed.median,
    )
