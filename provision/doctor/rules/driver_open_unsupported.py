"""The open kernel modules are loaded on a GPU that is too old for them."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import model_of, name_address, nvidia_devices, own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"installed in this system is not supported by (?:the )?(?:NVIDIA )?open",)

_EXPECTED = "the proprietary kernel modules on GPUs without a system processor"


def examine(case: Case) -> Sign | None:
    """Compare the flavour that is loaded with what each GPU needs; the kernel's own complaint says the same."""
    quote = case.find(*SYMPTOMS)
    events = case.events("open-unsupported")
    driver = case.look(lambda host: host.driver)
    wrong = []
    if driver is not None and driver.is_open is True:
        for device in nvidia_devices(case):
            model = model_of(case, device.name, device.device)
            if model is not None and model.open_modules == "unsupported":
                wrong.append((device.address, model.name))
    if wrong:
        complaints = (f"{address} is a {name}, and the open kernel modules are loaded" for address, name in wrong)
        return Sign(
            confidence="high",
            seen=(*complaints, *quote_events(events)),
            expected=_EXPECTED,
            subjects=tuple(name_address(case, address) for address, _ in wrong),
            seconds=own_seconds(case, events),
        )
    if quote is None and not events:
        return None
    if driver is not None and driver.is_open is False:
        return None
    return Sign(
        confidence="high" if driver is not None else "medium",
        seen=quote_events(events) or quoted(quote),
        expected=_EXPECTED,
        subjects=tuple(dict.fromkeys(event.pci for event in events if event.pci)),
        unseen=() if driver is not None else ("which flavour is loaded: `cat /proc/driver/nvidia/version`",),
        seconds=own_seconds(case, events),
    )
