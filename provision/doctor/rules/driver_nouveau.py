"""The kernel drives the GPU with nouveau, so the nvidia module cannot have it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"already bound (?:by|to) (?:nouveau|nova)",
    r"NVRM: nouveau, rivafb, nvidiafb or rivatv|NVRM: was loaded and obtained ownership of the NVIDIA device",
    r"\bnouveau [0-9a-f:.]{7,12}: .{0,80}(?:fault|failed|error|timeout|unknown chipset|hang|fallen off)",
    r"\bnouveau: probe of [0-9a-f:.]{7,12} failed with error",
    r"The Nouveau kernel driver is currently in use by your system",
    r"Kernel driver in use: nouveau",
    r"^nouveau\s{2,40}[0-9]{5,9}\s{1,6}[0-9]{1,4}",
    r"NVRM: Try unloading the conflicting kernel module",
)

_EXPECTED = "nouveau not loaded and every NVIDIA GPU with the driver nvidia"


def examine(case: Case) -> Sign | None:
    """Look at which driver has the GPUs; without a PCI listing, at the loaded modules."""
    quote = case.find(*SYMPTOMS)
    events = case.events("nouveau-bound")
    sign = explain_faults(case, case.faults("gpu.driver.nouveau"), expected=_EXPECTED, events=events, quote=quote)
    if sign is not None or case.look(lambda host: host.modules) is not None or (quote is None and not events):
        return sign
    return Sign(
        confidence="medium",
        seen=quote_events(events) or quoted(quote),
        expected=_EXPECTED,
        unseen=("whether nouveau is still loaded: `lsmod | grep nouveau`",),
        seconds=own_seconds(case, events),
    )
