"""What the health program of a Slurm node is given of the facts: doctor's sentences, and the Xids that are fatal."""

from __future__ import annotations

import json

from provision.matrix.load import Matrix

_SENTENCES = ("driver.device-nodes", "driver.hung", "gpu.lost", "gpu.missing", "xid.154", "xid.64")
"""The diagnoses that the program comes to by itself."""
_FATAL = "fatal"


def render_health_facts(matrix: Matrix) -> str:
    """Return the file ``health_facts.json`` of the role gpu_slurm."""
    sentences = {name: matrix.diagnoses[name].title for name in _SENTENCES}
    facts = {"sentences": sentences, "xids": {str(code): text for code, text in fatal_xids(matrix).items()}}
    return json.dumps(facts, indent=2, sort_keys=True) + "\n"


def fatal_xids(matrix: Matrix) -> dict[int, str]:
    """Return code → sentence of each Xid after which a GPU is of no use."""
    return {row.code: _say(matrix, row.code) for row in matrix.xids.values() if row.severity == _FATAL}


def _say(matrix: Matrix, code: int) -> str:
    """Return what doctor calls an Xid: the title of its own diagnosis, or its meaning in the catalogue."""
    own = matrix.diagnoses.get(f"xid.{code}")
    return own.title if own is not None else f"{matrix.xids[code].meaning} (Xid {code})"
