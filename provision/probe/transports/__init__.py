"""Ways to a target: each carries a script there on standard input and brings back what it printed.

Every transport offers ``collect`` (the script in, its raw output back) and ``run_command`` (one command of a person's
choice). Neither ever goes through a shell of this machine.
"""

from __future__ import annotations

from provision.records import record


@record
class Limits:
    """What one target may cost.

    Attributes:
        seconds: After this everything is ended; what came until then is kept.
        connect_seconds: After this a connection that is not there is given up.
        bytes_max: More output than this is not kept.
    """

    seconds: float = 120.0
    connect_seconds: int = 10
    bytes_max: int = 64 * 1024 * 1024


@record
class Node:
    """A node as its scheduler lists it; ``why`` it cannot be asked, empty where it can."""

    name: str
    why: str = ""


@record
class Finished:
    """How a program ended.

    Attributes:
        code: Its exit code; negative for a signal.
        out: Its standard output, up to the limit.
        err: The end of its standard error.
        is_late: It was ended because its time was over.
        is_cut: It printed more than was kept.
    """

    code: int
    out: bytes
    err: str
    is_late: bool = False
    is_cut: bool = False


class UnreachableError(Exception):
    """A target gave no answer.

    Args:
        reason: Why, one sentence without a full stop.
        hint: The way out, where one is known.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        """Return the reason, and the way out behind it."""
        return f"{self.reason}; {self.hint}" if self.hint else self.reason
