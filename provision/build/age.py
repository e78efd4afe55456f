"""How old the pins of a list are beside the framework that was chosen for it: nobody tried the two together then."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.request import FRAMEWORKS, Request, is_exact
from provision.resolve.requirements import normalise_name, requirement_of
from provision.resolve.stack import Stack

_DAYS_MAX = 365
_GIT_SECONDS = 5
_DEPENDENTS = ("dependents", "optional_dependents")


@record
class Age:
    """Pins that are much older than a framework which the request leaves open.

    Attributes:
        framework: Name and version (``torch 2.15.0``).
        released: Its day (ISO).
        pins: Name and version of what stands on the framework and is pinned, sorted.
        newest: The day on which the last of them was published (ISO).
        day: The day on which the last pin of the whole list was.
    """

    framework: str
    released: str
    pins: tuple[str, ...]
    newest: str
    day: str


def find_age(request: Request, stack: Stack, matrix: Matrix, uploaded: Mapping[tuple[str, str], str]) -> Age | None:
    """Return the pins of a list that are more than a year older than a framework, if all that stand on it are.

    Args:
        request: What was asked for.
        stack: The answer.
        matrix: The facts.
        uploaded: Name and version → when it was published (ISO), as the index says.
    """
    pinned = set()
    for line in request.requirements:
        requirement = requirement_of(line)
        name = normalise_name(requirement.name)
        if is_exact(requirement.specifier) and name in stack.packages:
            pinned.add((name, stack.packages[name].partition("+")[0]))
    days = {pin: uploaded[pin][:10] for pin in pinned if pin in uploaded}
    if not days:
        return None
    for framework in FRAMEWORKS:
        version = stack.frameworks.get(framework)
        released = _released(framework, version, matrix) if version is not None else None
        if released is None or is_exact(getattr(request, framework) or ""):
            continue
        settings = matrix.settings(f"frameworks/{framework}.toml")
        near = {name for key in _DEPENDENTS if key in settings for name in settings[key].values}
        found = {pin: day for pin, day in days.items() if pin[0] in near}
        if not found:
            continue
        newest = max(found.values())
        gap = datetime.date.fromisoformat(released) - datetime.date.fromisoformat(newest)
        if gap.days > _DAYS_MAX:
            return Age(
                framework=f"{framework} {version}",
                released=released,
                pins=tuple(sorted(f"{name} {text}" for name, text in found)),
                newest=newest,
                day=max(days.values()),
            )
    return None


def find_changed(project: Path) -> str | None:
    """Return the day (ISO, UTC) of the last commit to a folder, where a git repository on this machine tells it."""
    words = ["git", "-C", str(project), "log", "-1", "--format=%ct", "--", "."]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout.strip()
    if done.returncode or not text.isdigit():
        return None
    return datetime.datetime.fromtimestamp(int(text), datetime.UTC).date().isoformat()


def find_younger(stack: Stack, uploaded: Mapping[tuple[str, str], str], day: str) -> tuple[str, ...]:
    """Return which of the user's packages were published more than a year after a day (ISO), newest first.

    Args:
        stack: The lock.
        uploaded: Name and version → when it was published (ISO), as the index says.
        day: When the code that uses them was last changed.
    """
    end = (datetime.date.fromisoformat(day) + datetime.timedelta(days=_DAYS_MAX)).isoformat()
    packages = stack.image.packages if stack.image is not None else ()
    rows = [(uploaded.get((item.name, item.version), "")[:10], item) for item in packages if item.layer == "user"]
    younger = sorted(((when, item.name, item.version) for when, item in rows if when > end), reverse=True)
    return tuple(f"{name} {version}" for _, name, version in younger)


def _released(framework: str, version: str, matrix: Matrix) -> str | None:
    rows: Any = {"torch": matrix.torch_releases, "tensorflow": matrix.tensorflow, "jax": matrix.jax}[framework]
    return next((row.released for row in rows if row.version == version), None)
