"""The environment holds what the lock names, in those versions, on that Python."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.frameworks import has_planned_version
from provision.verify.outcome import Outcome, failed, passed, skipped
from provision.verify.work import counted

__all__ = ["check"]

_SHOWN_MAX = 6


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare every planned distribution with the installed one; what is installed besides is nobody's fault."""
    del matrix
    if not expected.packages:
        return skipped("no lock names packages")
    environment = host.python
    wrong = []
    if expected.python and not f"{environment.version}.".startswith(f"{expected.python.rstrip('t')}."):
        wrong.append(f"Python is {environment.version}, not {expected.python}")
    twice = {_normalise(name) for name in environment.duplicates}
    installed = {_normalise(name): version for name, version in environment.packages.items()}
    for name, version in sorted(expected.packages.items()):
        found = installed.get(_normalise(name))
        if found is None:
            wrong.append(f"{name} is missing")
        elif not has_planned_version(version, found):
            wrong.append(f"{name} is {found}, not {version}")
        elif _normalise(name) in twice:
            wrong.append(f"{name} is installed twice, and only one of the two is {version}")
    if wrong:
        more = f" and {len(wrong) - _SHOWN_MAX} more" if len(wrong) > _SHOWN_MAX else ""
        said = "; ".join(wrong[:_SHOWN_MAX])
        return failed(
            f"{environment.executable}: {said}{more}",
            counted(len(expected.packages), "package") + " as the lock has them",
        )
    return passed(f"{counted(len(expected.packages), 'package')} as locked, Python {environment.version}")


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
