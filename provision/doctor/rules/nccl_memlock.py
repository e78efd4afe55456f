"""The process may not lock as much memory as RDMA needs."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"Call to ibv_(?:reg_mr|reg_mr_iova2|reg_dmabuf_mr|create_cq|create_qp|alloc_pd).{0,40}Cannot allocate memory",
    r"RLIMIT_MEMLOCK is [0-9]{1,12} bytes",
    r"[Uu]nable to register memory.{0,80}Cannot allocate memory",
    r"ibv_(?:reg_mr|create_cq)\S{0,20} failed: Cannot allocate memory|Failed to create a completion queue \(CQ\)",
    r"(?:Call to )?ibv_create_(?:qp|cq) failed(?!.{0,40}(?:Invalid|not supported|No such))",
)


def examine(case: Case) -> Sign | None:
    """Read the limit of locked memory; it matters only where RDMA is used."""
    quote = case.find(*SYMPTOMS)
    limits = case.look(lambda host: host.limits)
    expected = "`ulimit -l` says unlimited, in the job itself"
    if quote is None:
        return explain_faults(
            case, case.faults("host.memlock"), expected=expected, unseen=("the limit inside the job",)
        )
    if limits is not None and "memlock_kib" in limits:
        limit = limits["memlock_kib"]
        if limit is not None:
            return hint(quote, confidence="high", seen=(f"the limit is {limit} KiB",), expected=expected)
        return hint(
            quote,
            confidence="low",
            seen=("the limit is unlimited for a login",),
            expected=expected,
            unseen=("the limit inside the job, which a daemon or a scheduler may set lower: `ulimit -l` there",),
        )
    return hint(quote, expected=expected, unseen=("the limit, in the job: `ulimit -l`",))
