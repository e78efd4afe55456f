"""Memory of the GPU held an error that cannot be corrected."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.doctor.xid import explain_xids

SYMPTOMS = (
    r"Xid \([^)]{1,40}\)[^:]{0,60}: 48\b",
    r"double bit ECC error|uncorrectable double bit error",
    r"uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable",
)

_EXPECTED = "no uncorrectable error since the driver was loaded"


def examine(case: Case) -> Sign | None:
    """Look for Xid 48, and for counted errors that neither it nor a confined error accounts for."""
    counted = case.faults("gpu.ecc.uncorrected")
    counters = tuple(fault.said for fault in counted)
    kind = {171: "Xid 171 says it was DRAM", 172: "Xid 172 says it was SRAM"}
    details = tuple(text for code, text in kind.items() if case.xid(code))
    found = explain_xids(
        case,
        48,
        171,
        172,
        expected=_EXPECTED,
        seen=(*details, *counters),
        fix=_steps(case),
        unseen=("whether a row was remapped (Xid 63) or could not be (Xid 64)",),
    )
    if found is not None:
        return found
    if worn := case.faults("gpu.ecc.sram_threshold"):
        return explain_faults(
            case,
            worn,
            expected=_EXPECTED,
            seen=counters,
            fix=(
                "Drain the machine: errors of SRAM cannot be mapped out.",
                "Test the board with `dcgmi diag -r 3` and have it replaced: the threshold is passed for good.",
            ),
        )
    if case.xid(94, 95):
        return None
    if counted:
        return explain_faults(case, counted, expected=_EXPECTED, unseen=("the Xid that belongs to it",))
    unseen = ("the Xid that belongs to it: `dmesg -T | grep -i xid`",)
    return hint(case.find(SYMPTOMS[2]), expected=_EXPECTED, unseen=unseen)


def _steps(case: Case) -> tuple[str, ...]:
    if case.xid(64):
        return (
            "Drain the machine and reset the GPU with `nvidia-smi --gpu-reset -i INDEX`.",
            "Have the board replaced: the spare memory that should have taken over could not be put into use (Xid 64).",
        )
    if case.xid(63):
        return (
            "Drain the machine and reset the GPU with `nvidia-smi --gpu-reset -i INDEX`: the spare row takes over.",
        )
    return ()
