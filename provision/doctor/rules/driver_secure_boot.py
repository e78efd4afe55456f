"""Secure Boot refuses the nvidia module because nothing the machine trusts has signed it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import is_in_container, own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"could not insert '?(?:nvidia[\w-]{0,20}|nvhda)'?: (?:Key was rejected by service|Required key not available)",
    r"nvidia[\w.-]{0,40}: (?:Key was rejected by service|Loading of unsigned module is rejected)",
    r"Failed to insert (?:module )?'?nvidia[\w-]{0,20}'?: (?:Key was rejected|Required key)",
    r"unsigned module loading is restricted",
    r"could not insert '?nvidia[\w-]{0,20}'?: Operation not permitted",
)

_EXPECTED = "a module signed with an enrolled key, or Secure Boot off"


def examine(case: Case) -> Sign | None:
    """Put Secure Boot, the module's signer and the kernel's refusal together."""
    if is_in_container(case):
        return None
    quote = case.find(*SYMPTOMS)
    events = case.events("module-key-rejected")
    module = case.look(lambda host: host.nvidia_module)
    if module is not None and module.loaded_version:
        return None
    boot = case.look(lambda host: host.secure_boot)
    enforced = (case.look(lambda host: host.command_line) or {}).get("module.sig_enforce") is not None
    is_on = enforced or (boot is not None and boot.is_enabled is True)
    if module is not None and module.disk_version and is_on:
        why = "module.sig_enforce is set" if enforced else "Secure Boot is enabled"
        refused = quote is not None or bool(events)
        if module.signer == "" or refused:
            signer = "unsigned" if not module.signer else f"signed by {module.signer}"
            return Sign(
                confidence="high",
                seen=(
                    f"{why}, and nvidia {module.disk_version} on disk is {signer} and not loaded",
                    *quote_events(events),
                    *quoted(quote),
                ),
                expected=_EXPECTED,
                seconds=own_seconds(case, events),
            )
    if quote is None or (boot is not None and boot.is_enabled is False and not enforced):
        return None
    return Sign(
        confidence="medium",
        seen=quoted(quote),
        expected=_EXPECTED,
        unseen=("whether Secure Boot is on: `mokutil --sb-state`", "who signed the module: `modinfo -F signer nvidia`"),
        seconds=own_seconds(case, events),
    )
