"""What a Prometheus server knows of hosts: one query for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from provision.probe.clean import clean_line
from provision.probe.output import FAILED, OK, Output

__all__ = ["PROBE", "ask_prometheus"]

PROBE = "prometheus"
_ANSWER_SECONDS = 10
_ANSWER_BYTES_MAX = 64 * 1024 * 1024


def ask_prometheus(address: str, hosts: Sequence[str]) -> dict[str, Output]:
    """Ask whether the targets of hosts are up.

    Args:
        address: Of the server, ``http://prometheus.example:9090``.
        hosts: Names or addresses; a target belongs to one when its label ``node``, or its ``instance`` without the
            port, is that name.

    Returns:
        Host → what the server said of it, or why it said nothing.

    Source: the HTTP API of Prometheus, instant queries.
    """
    from http.client import HTTPException
    from urllib.request import urlopen

    if not address.startswith(("http://", "https://")) or "@" in address:
        # What stands before an @ is a password, and is repeated nowhere.
        said = "an address with a password in it" if "@" in address else f"`{clean_line(address)}`"
        return _fail(hosts, f"{said} is not an address of a Prometheus server that can be asked")
    try:
        with urlopen(f"{address.rstrip('/')}/api/v1/query?query=up", timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - as above
            document = json.loads(answer.read(_ANSWER_BYTES_MAX))
        rows = [row for row in document["data"]["result"] if isinstance(row["metric"], dict)]
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        return _fail(hosts, f"{clean_line(address)} gave no answer: {clean_line(str(error))}")
    return {
        host: Output(
            probe=PROBE,
            status=OK,
            code=0,
            text=json.dumps(
                {
                    "status": "success",
                    "data": {"resultType": "vector", "result": [row for row in rows if _is_of(row["metric"], host)]},
                }
            ),
        )
        for host in hosts
    }


def _is_of(labels: dict[str, Any], host: str) -> bool:
    instance = str(labels.get("instance", ""))
    name, _, port = instance.rpartition(":")
    return host in (labels.get("node"), instance, name.strip("[]") if port.isdecimal() else instance)


def _fail(hosts: Sequence[str], why: str) -> dict[str, Output]:
    return {host: Output(probe=PROBE, status=FAILED, code=1, error=why) for host in hosts}
