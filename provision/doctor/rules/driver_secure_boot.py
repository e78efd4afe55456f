"""Secure Boot refuses the nvidia module because nothing the machine trusts has signed it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import is_in_container
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.records import replace
from provision.signals.signal import PASS, SKIP

SYMPTOMS = (
    r"could not insert (?:module )?'?(?:\S{0,80}/)?(?:nvidia[\w.-]{0,20}|nvhda)'?: "
    r"(?:Key was rejected by service|Required key not available)",
    r"nvidia[\w.-]{0,40}: (?:Key was rejected by service|Loading of unsigned module is rejected)",
    r"Failed to insert (?:module )?'?nvidia[\w-]{0,20}'?: (?:Key was rejected|Required key)",
    r"unsigned module loading is restricted",
    r"could not insert '?nvidia[\w-]{0,20}'?: Operation not permitted",
    r"Loading of module with unavailable key is rejected|PKCS#7 signature not signed with a trusted key",
    r"kernel module failed to load\. Secure boot is enabled",
    r"not signed by a key that is trusted|nvidia-installer cannot sign",
    r"[Ff]ailed to sign (?:the )?(?:linked |precompiled )?kernel module",
    r"Loading of (?:unsigned )?module\w{0,3}.{0,40}is (?:rejected|restricted)|[Ss]ecure ?[Bb]oot is enabled",
)

_EXPECTED = "a module signed with an enrolled key, or Secure Boot off"


_UNSEEN = ("whether Secure Boot is on: `mokutil --sb-state`", "who signed the module: `modinfo -F signer nvidia`")


def examine(case: Case) -> Sign | None:
    """Put Secure Boot, the module's signer and the kernel's refusal together."""
    if is_in_container(case):
        return None
    quote = case.find(*SYMPTOMS)
    events = case.events("module-key-rejected")
    sign = explain_faults(case, case.faults("host.secureboot"), expected=_EXPECTED, events=events, quote=quote)
    signal = case.signal("host.secureboot")
    if sign is not None:
        return replace(sign, confidence="high") if quote is not None or events else sign
    if quote is None or signal is None or signal.status in (PASS, SKIP):
        return None if signal is not None else hint(quote, expected=_EXPECTED, unseen=_UNSEEN)
    return hint(quote, confidence="high", seen=(signal.seen,), expected=_EXPECTED)
