"""Kernel modules of the wrong flavour: open ones on a GPU too old for them, proprietary ones on a GPU too new."""

from __future__ import annotations

from collections.abc import Sequence

from provision.doctor.case import Case
from provision.doctor.gpus import model_of, name_address, nvidia_devices, own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign

__all__ = ["examine_flavour"]


def examine_flavour(
    case: Case, *, symptoms: Sequence[str], event: str, is_open: bool, models: str, expected: str
) -> Sign | None:
    """Compare the flavour that is loaded with what each GPU needs; the kernel's own complaint says the same.

    Args:
        case: What is to be explained.
        symptoms: Patterns of the complaint.
        event: Kind of the kernel's event.
        is_open: The flavour that would be wrong.
        models: Value of ``open_modules`` in ``gpus.toml`` for the GPUs on which it is.
        expected: What a healthy target shows instead.
    """
    quote = case.find(*symptoms)
    events = case.events(event)
    driver = case.look(lambda host: host.driver)
    wrong = []
    if driver is not None and driver.is_open is is_open:
        for device in nvidia_devices(case):
            model = model_of(case, device.name, device.device)
            if model is not None and model.open_modules == models:
                wrong.append((device.address, model.name))
    if wrong:
        loaded = f"the {'open' if is_open else 'proprietary'} kernel modules are loaded"
        return Sign(
            confidence="high",
            seen=(*(f"{address} is a {name}, and {loaded}" for address, name in wrong), *quote_events(events)),
            expected=expected,
            subjects=tuple(name_address(case, address) for address, _ in wrong),
            seconds=own_seconds(case, events),
        )
    if quote is None and not events:
        return None
    if driver is not None and driver.is_open is not is_open:
        return None
    return Sign(
        confidence="high" if driver is not None else "medium",
        seen=quote_events(events) or quoted(quote),
        expected=expected,
        subjects=tuple(dict.fromkeys(event.pci for event in events if event.pci)),
        unseen=() if driver is not None else ("which flavour is loaded: `cat /proc/driver/nvidia/version`",),
        seconds=own_seconds(case, events),
    )
