"""Checks asked of machines of `machines.py`, with one of their answers changed."""

from __future__ import annotations

import json

import machines

from provision.matrix.load import Matrix
from provision.probe.output import Output
from provision.records import replace
from provision.signals.expectation import Expectation
from provision.signals.signal import Signal
from provision.verify.engine import verify_one

__all__ = ["MATRIX", "ask", "of_gpu", "payload", "text"]

MATRIX = Matrix()


def ask(check: str, outputs: dict[str, Output], *, machine: str = "hgx_h100", **changes: object) -> Signal:
    """Return the answer of one check, asked as the engine asks it."""
    expected: Expectation = replace(machines.EXPECTED[machine], **changes)
    (result,) = verify_one(machines.snapshot(outputs), expected, MATRIX, [MATRIX.checks[check]])
    return result.outcome


def text(outputs: dict[str, Output], probe: str, content: str) -> dict[str, Output]:
    """Return a machine on which a probe printed something else."""
    return machines.replace_output(outputs, probe, text=content, status="ok", code=0)


def payload(outputs: dict[str, Output], probe: str, **changes: object) -> dict[str, Output]:
    """Return a machine on which fields of a payload's document are others."""
    mark = "@provision-payload "
    document = json.loads(outputs[probe].text.partition(mark)[2])
    return text(outputs, probe, f"{mark}{json.dumps(document | changes)}\n")


def of_gpu(outputs: dict[str, Output], probe: str, place: int, key: str, **values: object) -> dict[str, Output]:
    """Return a machine on which a payload says something else of one GPU."""
    gpus = json.loads(outputs[probe].text.partition("@provision-payload ")[2])["gpus"]
    gpus[place][key] = gpus[place][key] | {name.replace("__", "-"): value for name, value in values.items()}
    return payload(outputs, probe, gpus=gpus)
