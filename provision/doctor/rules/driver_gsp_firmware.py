"""The firmware of the GPU's system processor is missing, or belongs to another driver."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"gsp[\w]{0,20}\.bin failed with error",
    r"Cannot initialize GSP firmware",
    r"RmInitAdapter failed",
    r"rm_init_adapter(?:\([0-9]{1,2}\))? failed",
    r"unexpected WPR2 already up|RmFetchGspRmImages: No firmware image found"
    r"|GSP-FMC reported an error",
    r"failed to wait for bar firewall to lower",
    r"NVRM: .{0,60}(?:Possible bad register read|GSP RM heartbeat timed out)",
)

_EXPECTED = "firmware of the loaded driver's version below `/lib/firmware/nvidia`"


def examine(case: Case) -> Sign | None:
    """Compare the firmware that runs with the driver, and, where a GPU did not start, the firmware on disk."""
    loads = case.events("gsp-firmware")
    starts = case.events("rm-init-failed")
    quote = case.find(*SYMPTOMS)
    driver = case.look(lambda host: host.driver)
    versions = case.look(lambda host: host.firmware)
    is_absent = driver is not None and versions is not None and driver.version not in versions
    missing = ""
    if is_absent and driver is not None:
        there = ", ".join(versions or ()) or "none"
        missing = f"the driver is {driver.version}, firmware on disk is for {there}"
    if others := case.faults("gpu.gsp"):
        seen = (f"the driver is {driver_of(case)}", *((missing,) if missing else ()))
        return explain_faults(
            case, others, expected="the driver's firmware on every GPU", events=(*loads, *starts), seen=seen
        )
    subjects = tuple(dict.fromkeys(event.pci for event in (*loads, *starts) if event.pci))
    seconds = own_seconds(case, (*loads, *starts))
    if missing and (loads or starts):
        seen = (missing, *quote_events((*loads, *starts)))
        return Sign(confidence="high", seen=seen, expected=_EXPECTED, subjects=subjects, seconds=seconds)
    if loads:
        return Sign(
            confidence="medium",
            seen=quote_events((*loads, *starts)),
            expected=_EXPECTED,
            subjects=subjects,
            unseen=("which firmware is on disk: `ls /lib/firmware/nvidia`",) if versions is None else (),
            seconds=seconds,
        )
    if quote is None:
        return None
    return Sign(
        confidence="low",
        seen=quoted(quote),
        expected=_EXPECTED,
        subjects=subjects,
        unseen=("the kernel's lines before this one", "which firmware is on disk: `ls /lib/firmware/nvidia`"),
        seconds=seconds,
    )
