"""A kernel read or wrote an address that is not its program's."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"an illegal memory access was encountered",
    r"CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress",
)

_SANITIZER = r"^=+ {1,8}(Invalid __[a-z]{1,12}__ (?:read|write) of size [0-9]{1,4}.{0,80})"


def examine(case: Case) -> Sign | None:
    """Look whether the place that the message names can be trusted, and whether a sanitizer names the access."""
    found = case.find(_SANITIZER)
    is_blocking = (case.look(lambda host: host.environment) or {}).get("CUDA_LAUNCH_BLOCKING", "").strip() == "1"
    late = "which call it was: the error is told late, and the stack may name another one"
    return hint(
        case.find(*SYMPTOMS),
        seen=(f'the sanitizer names the access: "{found.match[1].strip()}"',) if found else (),
        expected="kernels that touch only the memory of their program",
        unseen=(*(() if found or is_blocking else (late,)), "whether it follows the program or the GPU"),
    )
