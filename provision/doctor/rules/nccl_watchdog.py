"""A collective did not end in time: a rank is dead, slow, or does something else."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"Watchdog caught collective operation timeout",
    r"Some NCCL operations have failed or timed out",
    r"ProcessGroupNCCL'?s? (?:watchdog|heartbeat).{0,80}(?:time|stuck|hang|got stuck)",
    r"Received a dump signal due to a collective timeout",
    r"NCCL communicator.{0,160}(?:Socket Timeout|wait timeout)|NCCL communicator was aborted",
    r"Timed out initializing process group in store based barrier",
    r"WorkNCCL::checkTimeout|\bNCCL time-?out (?:at|error|occurred|during|when)\b",
    r"failed to pass monitoredBarrier",
    r"avoid data inconsistency, we are taking the entire process down|Exception raised from checkTimeout",
)

_WORK = r"\[?Rank ([0-9]{1,5})\]?.{0,160}SeqNum=([0-9]{1,12}), OpType=([A-Z_]{3,30})"


def examine(case: Case) -> Sign | None:
    """Collect the ranks that waited and what they waited in: look at the rank that is missing."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    waited: dict[int, str] = {}
    for found in case.find_all(_WORK):
        waited.setdefault(int(found.match[1]), f"{found.match[3]} {found.match[2]}")
    seen = []
    works = sorted(set(waited.values()))
    if waited:
        ranks = ", ".join(map(str, sorted(waited)[:16]))
        seen.append(f"{'ranks' if len(waited) > 1 else 'rank'} {ranks} waited in {', '.join(works[:4])}")
    if len(works) > 1:
        seen.append("the ranks were not in the same operation, so their programs took different ways")
    first = next(iter(case.events("xid", "fallen-off", "nccl-segfault")), None)
    if first is not None:
        seen.append(f"the kernel log has: {first.text}")
    return hint(
        quote,
        seen=seen,
        expected="every rank in the same collective",
        unseen=(
            *(() if waited else ("which ranks waited, and in what",)),
            *(() if first else ("the kernel logs of all hosts of the job, for an Xid before the time-out",)),
        ),
    )
