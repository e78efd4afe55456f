"""What one probe brought back, and the exception that keeps "unknown" from ever looking like "fine"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from provision.records import record

_Read = TypeVar("_Read")
_Default = TypeVar("_Default")

OK: Final = "ok"
FAILED: Final = "failed"
ABSENT: Final = "absent"
DENIED: Final = "denied"
HUNG: Final = "hung"
CUT: Final = "cut"
LOST: Final = "lost"
NOT_RUN: Final = "not-run"

STATUSES = {
    OK: "it ran and ended with 0",
    FAILED: "it ran and ended with another code; what it printed is kept",
    ABSENT: "the tool or file is not on the target",
    DENIED: "the target's user may not run or read it",
    HUNG: "it did not end within its time, or could not be ended at all",
    CUT: "it printed more than is kept, and the rest is missing",
    LOST: "the answer of the target ended before it; whether it ran is not known",
    NOT_RUN: "it belongs to a level that was not asked for, or nothing on the target calls for it",
}


@record
class Output:
    """What one probe brought back.

    Attributes:
        probe: Its id (``nvidia-smi-xml``).
        status: A key of :data:`STATUSES`.
        code: Exit code; absent where nothing ran or nothing ended.
        seconds: How long it took.
        text: Its standard output, decoded with replacement, secrets replaced.
        error: Its standard error, likewise.
    """

    probe: str
    status: str
    code: int | None = None
    seconds: float = 0.0
    text: str = ""
    error: str = ""


class Unreadable(Exception):  # noqa: N818 - it is a state of knowledge, and reads so where it is caught
    """What was asked of a target is not known.

    Parsers raise it for text they cannot read, a snapshot for a probe that brought nothing. Verify turns it into
    ``unknown`` and doctor into what it could not see; neither ever takes it for a pass.

    Args:
        reason: One sentence without a full stop, naming the tool.
        probe: The probe it came from, where one is known.
        status: The status of that probe.
    """

    def __init__(self, reason: str, *, probe: str = "", status: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.probe = probe
        self.status = status


def read_or(read: Callable[[], _Read], default: _Default) -> _Read | _Default:
    """Return what is read of a target, and a default where that is not known."""
    try:
        return read()
    except Unreadable:
        return default
