"""The container's shared memory is full: docker gives it little unless told otherwise."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.signals.signal import FAIL, PASS

SYMPTOMS = (
    r"\/dev/shm.{0,120}No space left on device",
    r"No space left on device.{0,120}(?:/dev/shm|shared memory|'/(?:psm|torch|sem|mp)[_-])",
    r"(?:creating|attaching to|extending) shared memory segment /dev/shm/nccl",
    r"insufficient shared memory \(shm\)",
    r"unable to allocate shared memory ?\(shm\) for file",
    r"(?:workers are|worker is) out of shared memory",
    r"DataLoader worker \(pid\(?s?\)? ?[0-9, ]{1,40}\) is killed by signal: Bus error",
    r"unable to (?:write to|open shared memory object|resize) .{0,30}/torch_(?!.{0,80}Too many open files)",
    r"shm_open.{0,40}(?:No space left|failed)",
    r"\bBus error\s{1,60}\(core dumped\)",
    r"^Bus error\b",
    r"Fatal Python error: Bus error",
    r"signal 7 \(Bus error: nonexistent physical address\)",
    r"Signal 7 \(SIGBUS\) received by PID",
    r"posix_fallocate failed",
    r"shared memory segment (?:/dev/shm/)?nccl-",
    r"failed to (?:extend|open|create|attach).{0,30}(?:/dev/shm|shared memory)",
    r"Unable to initialize shared memory key '.{1,80}' to requested size",
    r"\bexit ?code\W{1,4}-7\b",
    r"mm_iface failed to allocate receive FIFO|Failed to allocate memory pool \(name=mm_recv_desc\)|"
    r"check that /dev/shm or the directory you specified has more|not enough space (?:for|in|on) /dev/shm",
    r"\bshmget\(size=.{0,80}No space left on device|"
    r"failed to allocate [0-9]{1,12} bytes (?:with mm|using md (?:posix|sysv))\b",
)

# A bus error says that memory behind an address is not there, and not which memory.
_SAYS_SHARED = re.compile(r"shm|shared memory|/torch_|DataLoader|\bmm_|\bmm\b|md (?:posix|sysv)", re.IGNORECASE)
_OTHER_MEMORY = "whether a mapped file was cut short or its disk is full, which ends a program alike: `df -h`"

# It is not small: nobody may write there.
_CLOSED = r"\bshm_open\b.{0,60}Permission denied"


def examine(case: Case) -> Sign | None:
    """Read the size of /dev/shm; a container with a small or a full one is the case."""
    quote = None if case.find(_CLOSED) else case.find(*SYMPTOMS)
    signal = case.signal("ctr.shm")
    short = case.faults("ctr.shm")
    expected = "about 1 GiB of shared memory a GPU, or the host's"
    if quote is None:
        return explain_faults(case, short, expected=expected)
    is_told = signal is not None and signal.status in (PASS, FAIL)
    says_shared = _SAYS_SHARED.search(quote.line) is not None
    return hint(
        quote,
        confidence=_judge(bool(short), says_shared or not is_told),
        seen=(signal.seen,) if signal is not None and is_told else (),
        expected=expected,
        unseen=(
            *(() if is_told else ("its size, in the container: `df -h /dev/shm`",)),
            *(() if short or says_shared else (_OTHER_MEMORY,)),
        ),
    )


def _judge(is_short: bool, is_likely: bool) -> str:
    """Return how sure it is: a bus error where shared memory is seen to have room is little."""
    if is_short:
        return "high"
    return "medium" if is_likely else "low"
