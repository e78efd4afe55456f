"""The driver lets administrators only read the GPU's performance counters."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"ERR_NVGPUCTRPERM",
    r"does not have permission to access NVIDIA GPU Performance Counters",
    r"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES|NVPW_STATUS_INSUFFICIENT_PRIVILEGE",
)


def examine(case: Case) -> Sign | None:
    """Look at the driver's parameter; it is set on most hosts, and matters only to who complains."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    parameters = case.look(lambda host: host.driver_params)
    restricted = (parameters or {}).get("RmProfilingAdminOnly")
    expected = "RmProfilingAdminOnly: 0, or a privileged process"
    if restricted == "1":
        return Sign(confidence="high", seen=("RmProfilingAdminOnly is 1", *quoted(quote)), expected=expected)
    unseen = () if restricted else ("the driver's setting: `grep RmProfilingAdminOnly /proc/driver/nvidia/params`",)
    return hint(quote, expected=expected, unseen=unseen)
