"""The container's shared memory is full: docker gives it little unless told otherwise."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"\/dev/shm.{0,120}No space left on device",
    r"No space left on device.{0,120}/dev/shm",
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
)

# A bus error says that memory behind an address is not there, and not which memory.
_SAYS_SHARED = re.compile(r"shm|shared memory|/torch_|DataLoader", re.IGNORECASE)
_OTHER_MEMORY = "whether a mapped file was cut short or its disk is full, which ends a program alike: `df -h`"

_MOUNT = "/dev/shm"  # noqa: S108 - it is looked at, nothing is written there
_FULL_PERCENT = 90
_LIMIT = "shm-mib-per-gpu"


def examine(case: Case) -> Sign | None:
    """Read the size of /dev/shm; a container with a small or a full one is the case."""
    quote = case.find(*SYMPTOMS)
    systems = case.look(lambda host: host.file_systems) or ()
    shm = next((row for row in systems if row.mount == _MOUNT), None)
    size = shm.size_kib if shm else (case.look(lambda host: host.limits) or {}).get("shm_kib")
    where = case.look(lambda host: host.virtualization)
    gpus = case.look(lambda host: len(host.smi.gpus)) or 1
    seen = []
    if size is not None:
        seen.append(f"{_MOUNT} holds {size // 1024} MiB")
    is_full = bool(shm and shm.size_kib and shm.used_kib * 100 >= shm.size_kib * _FULL_PERCENT)
    if is_full and shm:
        seen.append(f"{shm.used_kib * 100 // shm.size_kib} % of it are used")
    is_small = bool(
        size is not None and size < case.matrix.limit(_LIMIT) * gpus * 1024 and where and where.is_container
    )
    expected = "about 1 GiB of shared memory a GPU, or the host's"
    if quote is None:
        # A small one is no fault until something runs out of it; a full one is.
        return Sign(confidence="medium", seen=tuple(reversed(seen)), expected=expected) if is_full else None
    says_shared = _SAYS_SHARED.search(quote.line) is not None
    return hint(
        quote,
        confidence=_judge(is_full or is_small, says_shared or size is None),
        seen=seen,
        expected=expected,
        unseen=(
            *(() if size is not None else ("its size, in the container: `df -h /dev/shm`",)),
            *(() if is_full or is_small or says_shared else (_OTHER_MEMORY,)),
        ),
    )


def _judge(is_short: bool, is_likely: bool) -> str:
    """Return how sure it is: a bus error where shared memory is seen to have room is little."""
    if is_short:
        return "high"
    return "medium" if is_likely else "low"
