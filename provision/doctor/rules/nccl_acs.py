"""PCI bridges send what GPUs tell each other up to the processor, where it is slow or lost."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.records import replace

SYMPTOMS = (
    r"# Out of bounds values : [1-9][0-9]{0,12} FAILED",
    r"ACSCtl:\s{1,4}SrcValid\+",
)


def examine(case: Case) -> Sign | None:
    """Look for bridges that redirect, on bare metal: a virtual machine's need to."""
    quote = case.find(*SYMPTOMS)
    run = case.look(lambda host: host.nccl_tests)
    devices = case.look(lambda host: host.lspci) or ()
    wrong = run.out_of_bounds if run else None
    broken = (f"nccl-tests counts {wrong} wrong values",) if wrong else ()
    expected = "SrcValid- on every bridge above the GPUs, and no wrong value in nccl-tests"
    sign = explain_faults(case, case.faults("gpu.iommu_acs/acs"), expected=expected, seen=broken, quote=quote)
    if sign is not None:
        return replace(sign, confidence="high") if broken or quote else sign
    is_cleared = any(device.is_acs_redirecting is False for device in devices)
    if broken:
        # Bridges that do not redirect leave a GPU or a link to blame, which is another rule's.
        if is_cleared:
            return None
        return Sign(
            confidence="low",
            seen=(*broken, *quoted(quote)),
            expected=expected,
            unseen=("the bridges' settings: run it as root",),
        )
    unseen = () if devices else ("the bridges' settings: `lspci -vvv | grep ACSCtl`",)
    return hint(quote, expected=expected, unseen=unseen)
