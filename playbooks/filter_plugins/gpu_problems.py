"""How a problem is told: what it is and the way out, and many of them in one numbered list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["FilterModule"]


def word_problem(what: str, way: str) -> str:
    """Return a problem as two sentences: what it is, and what to do about it."""
    return f"{what}. {way[:1].upper()}{way[1:]}."


def number_lines(problems: Iterable[str]) -> str:
    """Return problems one a line, numbered from 1."""
    return "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, start=1))


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_numbered": number_lines,
        }
