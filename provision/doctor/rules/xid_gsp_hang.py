"""The system processor of a GPU stopped answering the driver."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (
    r"Xid \([^)]{1,40}\)[^:]{0,60}: (?:119|120)\b",
    r"Timeout after \d{1,6}s of waiting for RPC response from GPU\d{0,3} GSP",
)

_EXPECTED = "the GSP answers within its time"


def examine(case: Case) -> Sign | None:
    """Look for Xids 119 and 120, and name the driver, on which the way out depends."""
    driver = case.look(lambda host: host.driver)
    seen: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    if driver is not None and driver.is_open is not None:
        flavour = "open" if driver.is_open else "proprietary"
        seen = (f"the driver is {driver.version} with the {flavour} kernel modules",)
        if driver.is_open:
            fix = (
                "Take the machine out of the scheduler and collect `nvidia-bug-report.sh`.",
                "Reset the GPU with `nvidia-smi --gpu-reset -i INDEX`; if that is refused or hangs, reboot.",
                "Update the driver to the newest of its branch.",
                "If it returns, reseat or replace the GPU; the open kernel modules cannot run without the GSP.",
            )
    unseen = ("the version and flavour of the driver: `cat /proc/driver/nvidia/version`",)
    found = explain_xids(case, 119, 120, expected=_EXPECTED, seen=seen, fix=fix, unseen=unseen)
    return found or hint(case.find(SYMPTOMS[1]), seen=seen, expected=_EXPECTED, fix=fix, unseen=unseen)
