"""Nodes of a Ray cluster, through its own scheduler: each is asked in a task that has all its GPUs.

Ray is not part of this program. What talks to it is ``payloads/ray_nodes.py``, which is given to the Python of the
``ray`` on the PATH.
"""

from __future__ import annotations

import binascii
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from provision.errors import MissingDependencyError, UsageError
from provision.probe.clean import clean_line
from provision.probe.transports import Node
from provision.probe.transports.process import last_line

_DRIVER = Path(__file__).parents[1] / "payloads/ray_nodes.py"
_LIST_SECONDS = 120
_START_SECONDS = 60
_HINTS = (
    "run it where Ray is installed and its cluster can be reached, such as on the head node; RAY_ADDRESS names another",
)


def list_nodes(names: Sequence[str]) -> tuple[Node, ...]:
    """Return the nodes of the cluster, each once, by name; hosts of one name are told apart by their id.

    Args:
        names: Which; none for all.

    Raises:
        UsageError: Ray does not know one of them.
        MissingDependencyError: There is no Ray here, or no cluster.
    """
    rows = {str(row.get("name")): row for row in _run({}, _LIST_SECONDS)}
    for name in names:
        if name not in rows:
            raise UsageError(
                f"Ray knows no node `{clean_line(name, 80)}`",
                hints=(f"nodes are {clean_line(', '.join(sorted(rows)), 400)}",),
            )
    found = {name: rows[name] for name in names or sorted(rows)}
    return tuple(
        Node(name=clean_line(name, 253), why="" if row.get("is_alive") else "Ray has it as dead")
        for name, row in found.items()
    )


def ask_nodes(names: Sequence[str], script: bytes, *, seconds: float) -> Iterator[tuple[str, bytes, str]]:
    """Run a script on nodes with their ``sh``, and yield each node with what it printed, as they end.

    A node whose GPUs were not free in time, or that failed, comes with the reason.

    Args:
        names: Nodes that :func:`list_nodes` calls alive.
        script: What to run; every node gets it on its standard input.
        seconds: Limit of it on a node.

    Raises:
        MissingDependencyError: There is no Ray here, or no cluster.
    """
    asked = {
        "names": list(names),
        "script": binascii.b2a_base64(script, newline=False).decode(),
        "seconds": seconds,
        "start_seconds": _START_SECONDS,
    }
    missing = dict.fromkeys(names)
    for row in _run(asked, seconds + _START_SECONDS + _LIST_SECONDS):
        name, answer = str(row.get("name")), row.get("answer")
        if name not in missing:
            continue
        del missing[name]
        if answer is None:
            yield name, b"", clean_line(str(row.get("why")), 300)
            continue
        try:
            yield name, binascii.a2b_base64(answer), ""
        except binascii.Error:
            yield name, b"", "its answer is damaged"
    for name in missing:
        yield name, b"", "Ray's task ended before it answered"


def _run(asked: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
    """Give the driver what is asked, and return the rows that it printed."""
    import subprocess

    program = shutil.which("ray")
    # The interpreter beside the program is the one that has Ray.
    python = Path(program).resolve().with_name("python") if program else None
    if python is None or not python.exists():
        raise MissingDependencyError("`ray` is not on this machine", hints=_HINTS)
    try:
        done = subprocess.run(
            [str(python), "-c", _DRIVER.read_text(encoding="utf-8")],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingDependencyError(f"Ray did not answer within {seconds:.0f} s", hints=_HINTS) from error
    rows = []
    for line in done.stdout.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    if done.returncode and not rows:
        raise MissingDependencyError(
            "Ray does not say which nodes there are", because=(clean_line(last_line(done.stderr), 300),), hints=_HINTS
        )
    return rows
