"""The CDI specification is missing, or describes another driver than the one that is loaded."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of
from provision.doctor.state import explain_faults
from provision.records import replace

SYMPTOMS = (
    r"unresolvable CDI devices",
    r"failed to inject CDI devices",
    r"error setting up CDI devices|setting up CDI devices:",
    r"\bFound 0 CDI devices",
    r"crun: (?:cannot stat|error stat'ing file) .{0,80}/lib\S{0,20}nvidia\S{0,30}\.so\.[0-9.]{3,14}|"
    r"error stat'ing file .{0,80}nvidia\S{0,30}\.so\.[0-9.]{3,14}",
    r"failed to (?:load|parse|unmarshal) CDI Spec",
    r"CDI device injection failed|failed to inject devices: .{0,60}CDI",
    r"failed to stat CDI host device",
    r"failed to fulfil mount request: .{0,120}(?:libcuda|libnvidia|nvidia-)",
)


def examine(case: Case) -> Sign | None:
    """Compare the driver's version with those in the library paths of each specification."""
    quote = case.find(*SYMPTOMS)
    specifications = case.look(lambda host: host.cdi)
    driver = driver_of(case)
    expected = f"a specification of nvidia.com/gpu made for driver {driver or 'that is loaded'}"
    if stale := explain_faults(case, case.faults("ctr.runtime/stale"), expected=expected, quote=quote):
        return replace(stale, confidence="high") if quote else stale
    if quote is None:
        return None
    if specifications is not None and not any((row.kind or "").startswith("nvidia.com/") for row in specifications):
        seen = ("no CDI specification of nvidia.com/gpu is on the host", *quoted(quote))
        return Sign(confidence="high", seen=seen, expected=expected)
    unseen = () if specifications is not None else ("which devices CDI knows: `nvidia-ctk cdi list`",)
    return hint(quote, expected=expected, unseen=unseen)
