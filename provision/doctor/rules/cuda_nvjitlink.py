"""An older nvJitLink is loaded than the framework's own libraries were linked against."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import wheel_version
from provision.versions import parse

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"undefined symbol: _{1,2}nvJitLink",
    r"symbol __nvJitLink[A-Za-z0-9_]{1,60}.{0,40}not defined",
    r"libnvJitLink\.so[.0-9]{0,10}.{0,20}cannot open shared object",
)


def examine(case: Case) -> Sign | None:
    """Look for an nvJitLink in LD_LIBRARY_PATH that is older than the one in the wheels."""
    quote = case.find(*SYMPTOMS)
    found = [
        library
        for library in case.look(lambda host: host.libraries) or ()
        if library.soname.startswith("libnvJitLink.so") and library.version
    ]
    front = [library for library in found if library.origin == "LD_LIBRARY_PATH"]
    own = wheel_version(case, "nvidia-nvjitlink")
    expected = "the nvJitLink of the framework's wheels"
    for first in front:
        if _is_older(first.version, own):
            seen = f"LD_LIBRARY_PATH puts {first.path} ({first.version}) before the wheel's {own}"
            return Sign(confidence="high", seen=(seen, *quoted(quote)), expected=expected)
    path = (case.look(lambda host: host.environment) or {}).get("LD_LIBRARY_PATH", "")
    shown = (f"LD_LIBRARY_PATH is {path}",) if "cuda" in path else ()
    unseen = () if shown or found else ("what stands in front: `echo $LD_LIBRARY_PATH`",)
    return hint(quote, confidence="high" if shown else "medium", seen=shown, expected=expected, unseen=unseen)


def _is_older(version: str | None, other: str | None) -> bool:
    try:
        return parse(version or "") < parse(other or "")
    except ValueError:
        return False
