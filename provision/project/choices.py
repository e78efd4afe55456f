"""The extras and groups that a project has and was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from provision.errors import UsageError


def no_such(flag: str, name: str, path: Path, known: Iterable[str]) -> UsageError:
    """Return the refusal of an extra or group that is not among those that are known."""
    names = ", ".join(sorted(known))
    return UsageError(
        f"{flag} {name}: {path} has none of that name",
        hints=(f"known are: {names}" if names else f"leave `{flag}` out",),
    )


def others(extras: Iterable[str]) -> str:
    """Return what a message says of the extras that were not asked for."""
    return f"; it has the extras {', '.join(sorted(extras))}" if extras else ""
