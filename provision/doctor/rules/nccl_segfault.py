"""A program crashed inside NCCL."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"segfault at .{0,120} in libnccl\.so",
    r"(?:Segmentation fault|SIGSEGV|signal 11).{0,160}libnccl",
    r"#[0-9]{1,2} .{0,160}/libnccl\.so\.[0-9.]{1,10}\b",
)


def examine(case: Case) -> Sign | None:
    """Look for a crash in the kernel log, and for more than one NCCL on the host."""
    events = case.events("nccl-segfault")
    libraries = case.look(lambda host: host.libraries) or ()
    versions = sorted(
        {library.version for library in libraries if library.soname.startswith("libnccl.so") and library.version}
    )
    several = (f"NCCL is on the host as {', '.join(versions)}",) if len(versions) > 1 else ()
    expected = "one NCCL on all ranks, and no crash in it"
    unseen = () if versions else ("which NCCL each rank loads: run it with `NCCL_DEBUG=VERSION`",)
    if events:
        return Sign(
            confidence="high",
            seen=(f'"{events[0].text}"', *several),
            expected=expected,
            seconds=events[0].seconds,
            unseen=unseen,
        )
    return hint(case.find(*SYMPTOMS), seen=several, expected=expected, unseen=unseen)
