"""Answers that are kept until something else is asked about."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def keeps_last(function: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
    """Let a function answer from memory for as long as it is asked about the very same things.

    Many rules ask of one environment after the other, and hashing one takes longer than reading it anew.
    """
    last: list[tuple[tuple[object, ...], _Answer]] = []

    @wraps(function)
    def kept(*args: _Asked.args, **named: _Asked.kwargs) -> _Answer:
        asked = (*args, *named.values())
        if not last or len(last[0][0]) != len(asked) or any(a is not b for a, b in zip(last[0][0], asked, strict=True)):
            last[:] = [(asked, function(*args, **named))]
        return last[0][1]

    return kept
